#include "calibrate/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/endless_transfer.hpp"
#include "calibrate/expert_load.hpp"
#include "calibrate/library_times.hpp"
#include "calibrate/passes.hpp"
#include "calibrate/rank_means.hpp"
#include "calibrate/stream_times.hpp"

namespace weft {
namespace {

using Clock = CalibrationPasses::Clock;

constexpr int kMinPasses = 2, kMaxPasses = 9;  // after a first one that does not count
// The share of the budget for operations alone; the rest is for transfers beside them.
constexpr double kAloneShare = 0.6;
// Elements.
constexpr std::int64_t kSmallTransfer = 16 << 10, kLargeTransfer = 1 << 20;
constexpr int kSmallTransfers = 30, kWaitingPasses = 2;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Measured {
  std::map<OpKey, std::vector<double>> seconds;
  std::vector<double> gaps;
  double total() const {
    double sum = 0;
    for (const auto& [key, times] : seconds) sum += median(times) * static_cast<double>(times.size());
    return sum;
  }
};

// Whether this rank takes longest of its class: it is the one that the others wait for.
bool is_slowest_of_class(const Plan& plan, Communicator& communicator, double total) {
  std::vector<double> totals(communicator.size(), 0.0);
  const std::size_t own = communicator.rank();
  totals[own] = total;
  totals = sums_of_ranks(communicator, totals);
  const RankClasses classes =
      find_rank_classes(Cluster(plan.cluster), plan.layout, model_groups(plan.model, plan.layout));
  for (std::size_t r = 0; r < totals.size(); ++r) {
    if (classes.class_of[r] != classes.class_of[own]) continue;
    if (totals[r] > totals[own] || (totals[r] == totals[own] && r < own)) return false;
  }
  return true;
}

// Of every key that was not known yet, the mean over the classes that have it of what their slowest rank took. The mean
// gap between operations.
Nanos agree(const Plan& plan, Communicator& communicator, const Measured& measured, std::map<OpKey, Nanos>& known) {
  const bool counts = is_slowest_of_class(plan, communicator, measured.total());
  std::set<OpKey> keys;  // of all classes, in one order
  for (const Operation& op : plan.graph.operations) {
    if (!op.is_transfer() && !known.contains(op.key)) keys.insert(op.key);
  }
  std::vector<double> own{counts ? median(measured.gaps) : 0.0, counts ? 1.0 : 0.0};
  for (const OpKey& key : keys) {
    const auto found = measured.seconds.find(key);
    const bool has = counts && found != measured.seconds.end();
    own.push_back(has ? median(found->second) : 0.0);
    own.push_back(has ? 1.0 : 0.0);
  }
  const std::vector<double> sums = sums_of_ranks(communicator, own);
  const auto mean = [&](std::size_t i) { return nanos_from_seconds(sums[2 * i] / std::max(sums[2 * i + 1], 1.0)); };
  std::size_t i = 1;
  for (const OpKey& key : keys) known[key] = std::max(Nanos{1}, mean(i++));
  return mean(0);
}

Measured measure_alone(const CalibrationJob& job, Communicator& communicator, CalibrationPasses& passes, double share) {
  Measured measured;
  const auto never = [] { return false; };
  meet(communicator);
  const Clock::time_point warming = Clock::now();
  passes.run([](const OpKey&, Clock::time_point, Clock::time_point) {}, never);
  // All ranks make as many passes, so that all are busy while any is measured.
  const double longest = mean_of_ranks(communicator, {CalibrationPasses::in_seconds(Clock::now() - warming)}).front();
  const double room = share * CalibrationPasses::in_seconds(job.budget) / std::max(longest, 1e-6);
  const int count = std::clamp(static_cast<int>(room), kMinPasses, kMaxPasses);
  for (int pass = 0; pass < count; ++pass) {
    meet(communicator);
    std::optional<Clock::time_point> last;
    passes.run(
        [&](const OpKey& key, Clock::time_point begin, Clock::time_point end) {
          measured.seconds[key].push_back(CalibrationPasses::in_seconds(end - begin));
          if (last) measured.gaps.push_back(CalibrationPasses::in_seconds(begin - *last));
          last = end;
        },
        never);
  }
  return measured;
}

// Seconds that a small transfer takes where compute waits for it: threads are woken, and all wait for the rank that
// comes last. So it is seen in passes that wait for one wherever a step would. Stages of a pipeline have such places
// apart, and a pass may have none; then transfers alone must do.
double seconds_waited_for(const CalibrationJob& job, Communicator& communicator, CalibrationPasses& passes,
                          EndlessTransfer& transfer, const Calibration& known) {
  meet(communicator);
  if (job.step.plan().classes.size() > 1 || passes.transfers() == 0) {
    return transfer.seconds_of_one_waited_for(kSmallTransfers);
  }
  double beyond_compute = 0;
  for (int pass = 0; pass < kWaitingPasses; ++pass) {
    beyond_compute += passes.run_with([&] { transfer.seconds_of_one_waited_for(1); }) -
                      passes.expected(known.operations, known.between_operations);
  }
  return beyond_compute / static_cast<double>(kWaitingPasses * passes.transfers());
}

// What the runtime adds to every transfer of a queue: seen in small ones, one after the other. And what comes on top
// where somebody waits for each.
void measure_handoff(const CalibrationJob& job, Communicator& communicator, CalibrationPasses& passes,
                     Calibration& result) {
  EndlessTransfer transfer(communicator, kSmallTransfer, 1);
  meet(communicator);
  const double took = mean_of_ranks(communicator, {transfer.seconds_of_one(kSmallTransfers)}).front();
  const double links = seconds(transfer.predicted(Cluster(job.step.plan().cluster)));
  result.handoff = nanos_from_seconds(std::max(0.0, took - links));
  const double waited =
      mean_of_ranks(communicator, {seconds_waited_for(job, communicator, passes, transfer, result)}).front();
  result.wake = nanos_from_seconds(std::max(0.0, waited - took));
}

// Operations beside a transfer, and the transfer beside operations.
void measure_together(const CalibrationJob& job, Communicator& communicator, CalibrationPasses& passes,
                      const std::map<OpKey, Nanos>& alone, Calibration& result) {
  EndlessTransfer transfer(communicator, kLargeTransfer, 4);
  meet(communicator);
  const double transfer_alone = transfer.seconds_of_one(3);
  double pass_seconds = 0;
  passes.run([&](const OpKey& key, Clock::time_point, Clock::time_point) { pass_seconds += seconds(alone.at(key)); },
             [] { return false; });
  const double room = std::min((1 - kAloneShare) * CalibrationPasses::in_seconds(job.budget), 2 * pass_seconds);
  const double wanted = mean_of_ranks(communicator, {room / transfer_alone}).front();
  const std::int64_t rounds = std::max<std::int64_t>(2, std::llround(wanted));
  meet(communicator);
  transfer.start(rounds);
  double took = 0, would_take = 0;
  while (!transfer.over()) {
    passes.run(
        [&](const OpKey& key, Clock::time_point begin, Clock::time_point end) {
          took += CalibrationPasses::in_seconds(end - begin);
          would_take += seconds(alone.at(key));
        },
        [&] { return transfer.over(); });
  }
  const double beside = transfer.wait() / static_cast<double>(rounds);
  const double compute_factor = would_take > 0 ? took / would_take : 1;
  const std::vector<double> factors = mean_of_ranks(communicator, {compute_factor, beside / transfer_alone});
  result.compute_slowdown = std::max(0.0, factors[0] - 1);
  result.transfer_slowdown = std::max(0.0, factors[1] - 1);
}

}  // namespace

void apply(const Calibration& calibration, DeviceProfile& device) {
  device.operations = calibration.operations;
  device.operation_overhead = calibration.between_operations;
  device.handoff = calibration.handoff;
  device.wake = calibration.wake;
  device.compute_slowdown = calibration.compute_slowdown;
  device.transfer_slowdown = calibration.transfer_slowdown;
  if (calibration.programs) {
    device.message_overhead = calibration.programs->message_overhead;
    device.reduce = calibration.programs->reduce;
  }
  if (calibration.further_slowdown > 0) device.further_slowdown = calibration.further_slowdown;
  if (calibration.waiting_slowdown > 0) device.waiting_slowdown = calibration.waiting_slowdown;
}

Calibration calibrate_rank(const CalibrationJob& job, Communicator& communicator, const Processor& processor) {
  const auto rank = make_id<Rank>(communicator.rank());
  const double share = kAloneShare / static_cast<double>(1 + job.cuts.size());
  auto advance = [&, done = 0.0](double by) mutable {
    done += by;
    if (job.on_progress) job.on_progress(std::min(done, 1.0));
  };
  Calibration result;
  {
    CalibrationPasses passes(job, job.step, rank, processor);
    const Measured measured = measure_alone(job, communicator, passes, share);
    result.between_operations = agree(job.step.plan(), communicator, measured, result.operations);
    advance(share);
    if (processor.device == nullptr) {
      if (job.step.plan().model.experts) {
        result.expert_load = measure_expert_load(job.step.plan(), communicator, passes);
      }
      result.library = measure_library(passes.view(), communicator);
      if (communicator.size() > 1) measure_handoff(job, communicator, passes, result);
      if (communicator.size() > 1) measure_together(job, communicator, passes, result.operations, result);
    } else if (processor.collectives != nullptr) {
      measure_streams(communicator, processor, job.largest_transfer, passes, result);
    }
    advance(1 - kAloneShare);
  }
  for (const WholePlan* cut : job.cuts) {
    CalibrationPasses passes(job, *cut, rank, processor);
    agree(cut->plan(), communicator, measure_alone(job, communicator, passes, share), result.operations);
    advance(share);
  }
  if (job.on_progress) job.on_progress(1);
  return result;
}

}  // namespace weft
