#include "app/run/loss_comparison.hpp"

#include <algorithm>
#include <cmath>

#include "app/files.hpp"
#include "base/error.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

EarlierLosses read_earlier_losses(const std::string& file) {
  const nlohmann::json text = parse_json(read_text_file(file), file);
  const JsonObject report(text, file);
  if (!report.has("best") || !report.has("policies")) fail("{}: is not what weft run --json prints", file);
  EarlierLosses earlier{.file = file, .policy = report.string("best")};
  earlier.losses = report.object("policies").object(earlier.policy).numbers("losses", 0);
  if (earlier.losses.empty()) fail("{}: policy {} has no losses; weft run --json prints them", file, earlier.policy);
  return earlier;
}

std::vector<double> loss_differences_pct(const std::vector<double>& losses, const EarlierLosses& earlier) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(losses.size(), earlier.losses.size()); ++i) {
    differences.push_back(earlier.losses[i] > 0 ? 100 * (losses[i] / earlier.losses[i] - 1) : 0.0);
  }
  return differences;
}

std::string loss_comparison_text(const RunStudy& study, const EarlierLosses& earlier) {
  std::string text = fmt::format("\nLosses against {} ({}):\n", earlier.file, earlier.policy);
  for (const PolicyRun& run : study.runs) {
    const std::vector<double> differences = loss_differences_pct(run.losses, earlier);
    const auto furthest =
        std::ranges::max_element(differences, {}, [](double difference) { return std::abs(difference); });
    text += fmt::format("  {}: {:+.2f} % at step {}, the last that both have; furthest off {:+.2f} % at step {}\n",
                        run.measured.policy, differences.back(), differences.size(), *furthest,
                        furthest - differences.begin() + 1);
  }
  return text;
}

void add_loss_comparison(const RunStudy& study, const EarlierLosses& earlier, nlohmann::ordered_json& report) {
  report["earlier_losses"] = {{"file", earlier.file}, {"policy", earlier.policy}, {"losses", earlier.losses}};
  for (const PolicyRun& run : study.runs) {
    report["policies"][run.measured.policy]["loss_differences_pct"] = loss_differences_pct(run.losses, earlier);
  }
}

}  // namespace weft
