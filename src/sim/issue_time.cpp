#include "sim/issue_time.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "graph/operation_part.hpp"

namespace weft {
namespace {

bool is_beside_its_layer(const Operation& op, const Issue& issue) {
  return op.communication && !issue.blocking && op.communication->group == GroupKind::tp && op.layer >= 0;
}

// The traffic of tensor parallelism that runs beside the compute of a block, one transfer after the other. Compute that
// reads what it brings waits for it, and meanwhile the host gets ahead.
class TrafficBeside {
 public:
  explicit TrafficBeside(const StepGraph& graph) : graph_(&graph) {}

  // The transfers so far have ended then.
  Nanos free_at() const { return link_; }

  // `data`: when what it carries is there.
  void add(const Operation& transfer, Nanos data, Nanos duration) {
    link_ = std::max(link_, data) + duration;
    for (const Write& write : transfer.writes) {
      ends_[write.value].push_back({slice_of(*graph_, transfer, write.value), link_});
    }
  }

  // Returns when everything is there that an operation reads.
  Nanos ready(const Operation& reader) const {
    Nanos latest{0};
    if (ends_.empty()) return latest;
    for (const Read& read : reader.reads) {
      const auto found = ends_.find(read.value);
      if (found == ends_.end() || read.distance > 0) continue;
      const Slice slice = read_slice_of(*graph_, reader, read.value);
      for (const auto& [written, end] : found->second) {
        if (overlap(slice, written)) latest = std::max(latest, end);
      }
    }
    return latest;
  }

 private:
  const StepGraph* graph_;
  Nanos link_{0};
  std::map<ValueId, std::vector<std::pair<Slice, Nanos>>> ends_;
};

}  // namespace

void add_issue_time(const Plan& plan, const CostModel& cost, const std::vector<std::int32_t>& cost_of,
                    std::vector<SimCost>& costs) {
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    for (const IssueBlock& block : plan.classes[c].blocks) {
      Nanos host, device;
      TrafficBeside beside(plan.graph);
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        if (!op.per_micro_batch) continue;
        const Issue& issue = plan.issues[id];
        if (issue.blocking && op.communication->transfer >= 0) {
          host = cost.resync(op.rank_class);
          device = Nanos{0};
          beside = TrafficBeside(plan.graph);
          continue;
        }
        host += cost.launch(op);
        SimCost& own = costs[cost_of[id.index()]];
        if (is_beside_its_layer(op, issue)) {
          // Members of several classes share the entry: whoever issues last is not known here.
          const bool is_own = op.communication->transfer < 0;
          if (is_own) own.fixed += std::max(Nanos{0}, host - std::max(device, beside.free_at()));
          beside.add(op, device, own.fixed + own.moving);
        }
        if (issue.queue != kComputeQueue && !issue.blocking) continue;
        device = std::max(device, beside.ready(op));
        const Nanos waits = std::max(Nanos{0}, host - device);
        device += waits + own.fixed + own.moving;
        own.fixed += waits;
      }
    }
  }
}

}  // namespace weft
