#include "plan/schedule/blocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "plan/schedule/pipeline.hpp"

namespace weft {
namespace {

// Sends and receives in each direction progress on their own, as separate streams would.
// The stages of a substituted transfer do so too, so that one part may be between nodes while the next is inside them.
std::string queue_name(const Operation& op) {
  const Communication& c = *op.communication;
  if (op.rule != Substitution::none) {
    std::string name(name_of(c.group));
    if (c.scope != Scope::whole) name.append(" ").append(name_of(c.scope));
    return c.collective == Collective::all_gather ? name + " gather" : name;
  }
  switch (c.group) {
    case GroupKind::pp_prev:
    case GroupKind::pp_next:
      return fmt::format("pp {} {}", op.phase == Phase::forward ? "forward" : "backward", c.sends ? "send" : "recv");
    case GroupKind::edp:
      return "edp";
    default:
      return std::string(name_of(c.group));
  }
}

}  // namespace

std::int32_t communication_queue(ClassPlan& plan, const std::string& name) {
  std::size_t q = 0;
  while (q < plan.queues.size() && plan.queues[q].name != name) ++q;
  if (q == plan.queues.size()) plan.queues.push_back({name, QueueKind::communication});
  return static_cast<std::int32_t>(q);
}

void issue_by_group(Plan& plan) {
  plan.classes.assign(plan.graph.classes.size(), {});
  plan.issues.assign(plan.graph.operations.size(), {});
  for (ClassPlan& c : plan.classes) c.queues.push_back({"compute", QueueKind::compute});
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (!op.communication) continue;
    plan.issues[i].queue = communication_queue(plan.classes[op.rank_class.index()], queue_name(op));
  }
}

void block_on_transfers(Plan& plan) {
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    // A blocking send would deadlock 1F1B: each neighbour would wait for the other to receive first.
    const bool send =
        op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
    plan.issues[i].blocking = op.is_transfer() && !send;
  }
}

void order_blocks(Plan& plan, bool paired) {
  const auto chunks = static_cast<std::size_t>(plan.layout.vpp);
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    std::vector<IssueBlock>& blocks = plan.classes[c].blocks;
    blocks.clear();
    for (std::size_t k = 0; k < chunks; ++k) {
      blocks.push_back({fmt::format("forward {}", k), {}});
      blocks.push_back({fmt::format("backward {}", k), {}});
    }
    blocks.push_back({"update", {}});
  }
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    std::vector<IssueBlock>& blocks = plan.classes[op.rank_class.index()].blocks;
    const auto chunk = static_cast<std::size_t>(op.chunk);
    const std::size_t block = op.per_micro_batch ? 2 * chunk + (op.phase == Phase::forward ? 0 : 1) : 2 * chunks;
    blocks[block].operations.push_back(make_id<OpId>(i));
  }
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    std::vector<Slot>& order = plan.classes[c].order;
    order.clear();
    for (const PipelineSlot& slot : pipeline_order(plan.layout, plan.graph.classes[c].stage, paired)) {
      order.push_back({2 * slot.chunk + (slot.forward ? 0 : 1), slot.micro_batch});
    }
    order.push_back({static_cast<std::int32_t>(2 * chunks), -1});
  }
}

void order_reductions(Plan& plan, const std::vector<std::int32_t>& finished) {
  for (ClassPlan& c : plan.classes) {
    std::vector<OpId>& update = c.blocks.back().operations;
    const auto rest =
        std::stable_partition(update.begin(), update.end(), [&](OpId id) { return finished[id.index()] >= 0; });
    // Stable: replicas' reductions stand before the buckets that read them and finish no later.
    std::stable_sort(update.begin(), rest, [&](OpId a, OpId b) { return finished[a.index()] < finished[b.index()]; });
  }
}

}  // namespace weft
