#include "app/run/loss_comparison.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "app/files.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

// The mean of the losses up to step `steps`, of kStepsOfAMeanLoss at most.
double mean_loss(const std::vector<double>& losses, std::int64_t steps) {
  const std::int64_t count = std::min(steps, kStepsOfAMeanLoss);
  const auto end = losses.begin() + steps;
  return std::accumulate(end - count, end, 0.0) / static_cast<double>(count);
}

double last_loss(const EarlierLosses& earlier) {
  return mean_loss(earlier.losses, std::ssize(earlier.losses));
}

double seconds_of(std::int64_t steps, double step_s) {
  return static_cast<double>(steps) * step_s;
}

std::string time_text(const PolicyRun& run, const EarlierLosses& earlier) {
  const std::int64_t steps = std::ssize(earlier.losses);
  std::string text = fmt::format("  {}: the mean of the last {} losses there, {:.4f}, is ", run.measured.policy,
                                 std::min(steps, kStepsOfAMeanLoss), last_loss(earlier));
  const auto in_words = [](std::int64_t count, double step_s) {
    return fmt::format("{} ({} steps of {})", format_time(nanos_from_seconds(seconds_of(count, step_s))), count,
                       format_time(nanos_from_seconds(step_s)));
  };
  const std::optional<std::int64_t> own = steps_to_last_loss(run.losses, earlier);
  text += own ? fmt::format("reached after {}", in_words(*own, run.median_step_s()))
              : fmt::format("not reached in {}", in_words(std::ssize(run.losses), run.median_step_s()));
  if (earlier.median_step_s > 0) text += fmt::format("; there it took {}", in_words(steps, earlier.median_step_s));
  return text + "\n";
}

}  // namespace

EarlierLosses read_earlier_losses(const std::string& file) {
  const nlohmann::json text = parse_json(read_text_file(file), file);
  const JsonObject report(text, file);
  if (!report.has("best") || !report.has("policies")) fail("{}: is not what weft run --json prints", file);
  EarlierLosses earlier{.file = file, .policy = report.string("best")};
  const JsonObject policy = report.object("policies").object(earlier.policy);
  earlier.losses = policy.numbers("losses", 0);
  if (policy.has("step_median_s")) earlier.median_step_s = policy.number("step_median_s", 0);
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

std::optional<std::int64_t> steps_to_last_loss(const std::vector<double>& losses, const EarlierLosses& earlier) {
  const double wanted = last_loss(earlier);
  const std::int64_t fewest = std::min(kStepsOfAMeanLoss, std::ssize(earlier.losses));
  for (std::int64_t steps = fewest; steps <= std::ssize(losses); ++steps) {
    if (mean_loss(losses, steps) <= wanted) return steps;
  }
  return std::nullopt;
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
    text += time_text(run, earlier);
  }
  return text;
}

void add_loss_comparison(const RunStudy& study, const EarlierLosses& earlier, nlohmann::ordered_json& report) {
  report["earlier_losses"] = {{"file", earlier.file}, {"policy", earlier.policy}, {"losses", earlier.losses}};
  if (earlier.median_step_s > 0) {
    report["earlier_losses"]["seconds"] = seconds_of(std::ssize(earlier.losses), earlier.median_step_s);
  }
  for (const PolicyRun& run : study.runs) {
    nlohmann::ordered_json& policy = report["policies"][run.measured.policy];
    policy["loss_differences_pct"] = loss_differences_pct(run.losses, earlier);
    const std::optional<std::int64_t> steps = steps_to_last_loss(run.losses, earlier);
    policy["to_earlier_loss"] = {{"mean_loss", last_loss(earlier)}, {"steps", nullptr}, {"seconds", nullptr}};
    if (!steps) continue;
    policy["to_earlier_loss"]["steps"] = *steps;
    policy["to_earlier_loss"]["seconds"] = seconds_of(*steps, run.median_step_s());
  }
}

}  // namespace weft
