#include "app/against/fit_report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "app/against/error_words.hpp"
#include "base/table.hpp"
#include "io/profile_json.hpp"

namespace weft {
namespace {

// Shares of a peak are numbers up to 1; times are shown in microseconds.
bool is_share(const ProfileFit::Constant& constant) {
  return constant.name.find("efficiency") != std::string::npos || constant.name.find(".links.") != std::string::npos;
}

std::string figure(const ProfileFit::Constant& constant, double value) {
  return is_share(constant) ? fmt::format("{:.3f}", value) : fmt::format("{:.1f} us", value * 1e6);
}

}  // namespace

std::string fit_text(const ProfileFit& fit) {
  TextTable constants({"constant", "before", "fitted", "without any one row"});
  for (const ProfileFit::Constant& constant : fit.constants) {
    constants.add_row({constant.name, figure(constant, constant.before), figure(constant, constant.after),
                       fmt::format("{} to {}", figure(constant, constant.least), figure(constant, constant.most))});
  }
  TextTable errors({"predicted / measured - 1", "rows", "median", "mean", "worst", "bias"});
  errors.add_row(summary_cells("before", summarize(fit.before)));
  errors.add_row(summary_cells("fitted", summarize(fit.after)));
  errors.add_row(summary_cells("fitted without the row itself", summarize(fit.left_out)));
  std::string text = constants.to_string() + "\n" + errors.to_string();
  if (!fit.untold.empty()) {
    text += fmt::format("\nNo row depends on {}: as before.\n", fmt::join(fit.untold, ", "));
  }
  return text;
}

nlohmann::ordered_json fit_json(const ProfileFit& fit, const std::vector<std::int64_t>& lines) {
  nlohmann::ordered_json json{{"before", summary_json(summarize(fit.before))},
                              {"fitted", summary_json(summarize(fit.after))},
                              {"left_out", summary_json(summarize(fit.left_out))},
                              {"constants", nlohmann::ordered_json::array()},
                              {"untold", fit.untold},
                              {"rows", nlohmann::ordered_json::array()}};
  for (const ProfileFit::Constant& constant : fit.constants) {
    json["constants"].push_back({{"name", constant.name},
                                 {"unit", is_share(constant) ? "share" : "seconds"},
                                 {"before", constant.before},
                                 {"fitted", constant.after},
                                 {"least_left_out", constant.least},
                                 {"most_left_out", constant.most}});
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    json["rows"].push_back({{"line", lines[i]},
                            {"error_before", fit.before[i]},
                            {"error_fitted", fit.after[i]},
                            {"error_left_out", fit.left_out[i]}});
  }
  return json;
}

void write_fit_csv(std::ostream& out, const ProfileFit& fit, const std::vector<std::int64_t>& lines) {
  out << "line,error_before,error_fitted,error_left_out\n";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    fmt::print(out, "{},{:.6g},{:.6g},{:.6g}\n", lines[i], fit.before[i], fit.after[i], fit.left_out[i]);
  }
}

nlohmann::ordered_json fitted_profile_json(const ProfileFit& fit, const std::string& origin) {
  std::set<std::string> devices;
  for (const ProfileFit::Constant& constant : fit.constants) {
    devices.insert(constant.name.substr(0, constant.name.find('.')));
  }
  Profile fitted;
  fitted.framework = fit.profile.framework;
  for (const auto& [name, device] : fit.profile.devices) {
    if (devices.contains(name)) fitted.devices[name] = device;
  }
  nlohmann::ordered_json json = profile_to_json(fitted);
  json["origin"] = origin;
  return json;
}

}  // namespace weft
