#include "study/run/run_study.hpp"

#include <algorithm>
#include <limits>

#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

// Returns the predicted time of each operation when it runs alone.
std::vector<Nanos> durations_alone(const PolicyStudy& predicted) {
  std::vector<Nanos> alone(predicted.plan().graph.operations.size());
  const Instances& instances = predicted.whole->unfolded().instances();
  for (std::size_t i = 0; i < instances.size(); ++i) {
    alone[instances[i].operation.index()] = predicted.timeline.operations[i].alone;
  }
  return alone;
}

// A step lasts from its first computation to that of the next step, on the first rank.
std::vector<double> step_times(const Timeline& timeline) {
  std::vector<Nanos> begins;
  for (const Span& span : timeline.spans) {
    const TimelineOperation& op = timeline.operations[span.operation];
    if (op.rank != 0 || op.queue != kComputeQueue) continue;
    const std::size_t iteration = span.iteration;
    if (begins.size() <= iteration) begins.push_back(span.start);
    begins[iteration] = std::min(begins[iteration], span.start);
  }
  std::vector<double> times;
  for (std::size_t i = timeline.steady_first; i + 1 < begins.size(); ++i) {
    times.push_back(seconds(begins[i + 1] - begins[i]));
  }
  if (times.empty()) times.push_back(timeline.period_ns * 1e-9);
  return times;
}

}  // namespace

double PolicyRun::median_step_s() const {
  std::vector<double> times = step_times_s;
  std::sort(times.begin(), times.end());
  const std::size_t n = times.size();
  return n % 2 == 1 ? times[n / 2] : (times[n / 2 - 1] + times[n / 2]) / 2;
}

PolicyRun study_run(const PlanStudy& plan, const PolicyStudy& predicted, const MeasuredRun& run,
                    std::vector<double> losses) {
  PolicyRun result;
  result.losses = std::move(losses);
  result.predicted_step_s = predicted.step_s;
  result.predicted = predicted.timeline;
  result.predicted_accounting = predicted.accounting;
  PolicyStudy& measured = result.measured;
  measured = predicted;
  measured.timeline = measured_timeline(*predicted.whole, durations_alone(predicted), run);
  SpanIndex index(measured.timeline);
  measured.accounting = account(measured.timeline, index);
  measured.critical = critical_share(measured.timeline, index);
  measured.step_s = measured.timeline.period_ns * 1e-9;
  measured.throughput = throughput_of(plan.inputs.model, plan.inputs.layout, predicted.plan().graph, measured.step_s);
  measured.gap_to_bound_pct = 100 * (measured.step_s / plan.bound_s - 1);
  result.step_times_s = step_times(measured.timeline);
  return result;
}

Timeline first_steady_steps(const Timeline& measured, std::int32_t most) {
  const std::int32_t steps = std::min(measured.periods, most);
  const std::int32_t end = measured.steady_first + steps;
  Timeline result = expanded(measured, measured.steady_first - 1, end);
  if (steps == measured.periods) return result;
  // A step ends where the next one's first compute begins, on the first rank.
  Nanos next{std::numeric_limits<std::int64_t>::max()};
  for (const Span& span : result.spans) {
    const TimelineOperation& op = result.operations[span.operation];
    if (span.iteration == end && op.rank == 0 && op.queue == kComputeQueue) next = std::min(next, span.start);
  }
  result.periods = steps;
  result.period_ns = static_cast<double>((next - result.steady_begin).value) / steps;
  return result;
}

}  // namespace weft
