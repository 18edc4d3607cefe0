#include "app/plan/launch_gain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace weft {
namespace {

const PolicyStudy* find(const PlanStudy& study, const std::string& policy) {
  const auto found = std::find_if(study.policies.begin(), study.policies.end(),
                                  [&](const PolicyStudy& p) { return p.policy == policy; });
  return found == study.policies.end() ? nullptr : &*found;
}

std::string time_of(const PolicyStudy& p) {
  return format_time(nanos_from_seconds(p.step_s));
}

}  // namespace

std::vector<std::string> policies_beside(const std::string& launched) {
  return {"serial", launched, "weft"};
}

std::string launch_gain_line(const PlanStudy& study, const std::string& launched) {
  const PolicyStudy* const own = find(study, launched);
  if (own == nullptr) return "";
  const PolicyStudy& best = study.policies[study.best];
  if (!best.fits) return "Neither the launch as it is nor another policy fits.\n";
  const std::string as_it_is = fmt::format("the launch as it is ({}: {})", launched, time_of(*own));
  if (!own->fits) return fmt::format("{} fits and takes {}; {} does not fit.\n", best.policy, time_of(best), as_it_is);
  if (best.policy == launched) return fmt::format("Nothing here is faster than {}.\n", as_it_is);
  return fmt::format("Over {} {} gains {:.3f} x: {}.\n", as_it_is, best.policy, own->step_s / best.step_s,
                     time_of(best));
}

void add_launch_gain(nlohmann::ordered_json& report, const PlanStudy& study, const std::string& launched) {
  const PolicyStudy* const own = find(study, launched);
  if (own == nullptr) return;
  const PolicyStudy& best = study.policies[study.best];
  report["launch"] = {{"policy", launched},
                      {"step_s", own->step_s},
                      {"best", best.policy},
                      {"best_step_s", best.step_s},
                      {"speedup", own->step_s / best.step_s}};
}

}  // namespace weft
