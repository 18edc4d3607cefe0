#include "calibrate/thread_blocks.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

constexpr double kClearly = 0.98;  // of the first one's time: measurements of the same differ by as much

}  // namespace

double hidden_step_seconds(double compute, double transfers, double compute_slowdown, double transfer_slowdown) {
  const double slow_compute = compute * (1 + compute_slowdown), slow_transfers = transfers * (1 + transfer_slowdown);
  if (slow_compute < slow_transfers) return slow_compute + transfers - slow_compute / (1 + transfer_slowdown);
  return slow_transfers + compute - slow_transfers / (1 + compute_slowdown);
}

double transfers_of(const Plan& plan, ClassId rank_class, Bytes bytes) {
  double moved = 0;
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.rank_class != rank_class) continue;
    // An all_reduce moves its buffer twice.
    const double share = op.communication->collective == Collective::all_reduce ? 1.0 : 0.5;
    const std::int64_t times = op.per_micro_batch ? plan.layout.layer_groups() : 1;
    moved += share * static_cast<double>(op.communication->bytes.value * times);
  }
  return moved / static_cast<double>(bytes.value);
}

std::size_t best_beside(const std::vector<TransferBeside>& candidates, double compute, double transfers) {
  WEFT_CHECK(!candidates.empty());
  const auto step = [&](const TransferBeside& c) {
    return hidden_step_seconds(compute, transfers * c.alone, c.compute_slowdown, c.transfer_slowdown);
  };
  std::size_t best = 0;
  double least = kClearly * step(candidates.front());
  for (std::size_t i = 1; i < candidates.size(); ++i) {
    if (step(candidates[i]) >= least) continue;
    best = i;
    least = step(candidates[i]);
  }
  return best;
}

}  // namespace weft
