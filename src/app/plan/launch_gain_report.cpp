#include "app/plan/launch_gain_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace weft {
namespace {

std::string time_of(const PolicyStudy& p) {
  return format_time(nanos_from_seconds(p.step_s));
}

}  // namespace

std::string launch_gain_line(const std::optional<LaunchGain>& gain) {
  if (!gain) return "";
  const auto& [launched, best] = *gain;
  if (!best.fits) return "Neither the launch as it is nor another policy fits.\n";
  const std::string as_it_is = fmt::format("the launch as it is ({}: {})", launched.policy, time_of(launched));
  if (!launched.fits) {
    return fmt::format("{} fits and takes {}; {} does not fit.\n", best.policy, time_of(best), as_it_is);
  }
  if (best.policy == launched.policy) return fmt::format("Nothing here is faster than {}.\n", as_it_is);
  return fmt::format("Over {} {} gains {:.3f} x: {}.\n", as_it_is, best.policy, gain->speedup(), time_of(best));
}

void add_launch_gain(nlohmann::ordered_json& report, const std::optional<LaunchGain>& gain) {
  if (!gain) return;
  report["launch"] = {{"policy", gain->launched.policy},
                      {"step_s", gain->launched.step_s},
                      {"best", gain->best.policy},
                      {"best_step_s", gain->best.step_s},
                      {"speedup", gain->speedup()}};
}

}  // namespace weft
