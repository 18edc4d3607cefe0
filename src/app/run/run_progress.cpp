#include "app/run/run_progress.hpp"

#include <fmt/format.h>

#include <cmath>

#include "app/progress_bars.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace weft {
namespace {

constexpr std::chrono::milliseconds kBetweenDraws{50};
constexpr std::int64_t kLinesInALog = 10;

std::string line_of(const std::string& policy, std::int64_t step, std::int64_t steps, double loss,
                    const StepGlance& glance) {
  const std::string hidden = std::isnan(glance.hidden) ? "" : fmt::format("  {:3.0f} % hidden", 100 * glance.hidden);
  return fmt::format("{:<14} step {:>{}}/{}  loss {}  {}{}", policy, step + 1, std::to_string(steps).size(), steps,
                     loss_in_words(loss), format_time(Nanos{glance.nanos}), hidden);
}

}  // namespace

std::string loss_in_words(double loss) {
  return std::abs(loss) < 1e5 ? fmt::format("{:.4f}", loss) : fmt::format("{:.1e}", loss);
}

RunProgress::RunProgress(std::ostream& err, bool reports, bool terminal)
    : err_(err), reports_(reports), terminal_(terminal), bars_(progress_bars(reports && terminal ? &err : nullptr)) {}

// One write each, so that lines of several ranks do not mix.
void RunProgress::remark(const std::string& words) {
  err_ << fmt::format("weft: {}\n", words) << std::flush;
}

void RunProgress::measuring(Nanos about) {
  if (!reports_ || terminal_) return;
  err_ << fmt::format("measuring this machine for about {}\n", format_time(about)) << std::flush;
}

void RunProgress::progress(std::string_view task, std::size_t done, std::size_t total) {
  if (bars_) bars_(task, done, total);
}

void RunProgress::begin(const std::string& policy, std::int64_t steps) {
  policy_ = policy;
  steps_ = steps;
  drawn_ = {};
}

// The line of the last step stays.
bool RunProgress::is_due(std::int64_t step) {
  if (step + 1 == steps_) return true;
  if (!terminal_) return (step + 1) * kLinesInALog / steps_ != step * kLinesInALog / steps_;
  const auto now = std::chrono::steady_clock::now();
  if (now - drawn_ < kBetweenDraws) return false;
  drawn_ = now;
  return true;
}

void RunProgress::step(std::int64_t step, double loss, const StepGlance& glance) {
  if (!reports_ || !is_due(step)) return;
  const std::string line = line_of(policy_, step, steps_, loss, glance);
  if (!terminal_) {
    err_ << line + "\n" << std::flush;
  } else {
    err_ << "\r" << line << "\033[K" << (step + 1 == steps_ ? "\n" : "") << std::flush;
  }
}

// A line of its own, before the one that is drawn again and again.
void RunProgress::validated(std::int64_t steps, double loss) {
  if (!reports_) return;
  const std::string line = fmt::format("{:<14} step {:>{}}/{}  validation loss {}\n", policy_, steps,
                                       std::to_string(steps_).size(), steps_, loss_in_words(loss));
  err_ << (terminal_ ? "\r\033[K" : "") + line << std::flush;
}

}  // namespace weft
