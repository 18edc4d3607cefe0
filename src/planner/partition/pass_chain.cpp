#include "planner/partition/pass_chain.hpp"

#include <algorithm>
#include <span>

#include "base/error.hpp"

namespace weft {
namespace {

bool belongs(const Operation& op, ClassId rank_class, std::int32_t chunk, bool forward) {
  if (op.rank_class != rank_class || op.chunk != chunk || !op.per_micro_batch) return false;
  if ((op.phase == Phase::forward) != forward || op.phase == Phase::weight_grad) return false;
  if (!op.communication) return op.role != Role::param_keep && op.role != Role::param_decode;
  const GroupKind group = op.communication->group;
  return group != GroupKind::dp && group != GroupKind::shard && group != GroupKind::secondary &&
         group != GroupKind::edp;
}

Operation first_part(const StepGraph& graph, OpId id, const ChainCut& cut) {
  Operation part = graph.op(id);
  part.origins = {{id, cut.axis, 0, 1, cut.parts}};
  part.key.dims[0] = part_size(graph, graph.op(id), part.origins.front());
  if (part.communication) part.communication->bytes = {part.key.dims[0]};
  return part;
}

}  // namespace

const std::vector<ChainCut>& chain_cuts() {
  static const std::vector<ChainCut> cuts{{2, kTokenAxis},    {4, kTokenAxis},    {8, kTokenAxis},
                                          {2, kCapacityAxis}, {4, kCapacityAxis}, {8, kCapacityAxis}};
  return cuts;
}

std::size_t PassChain::index(const ChainCut& cut) {
  if (cut.parts == 1) return 0;
  const auto found = std::find(chain_cuts().begin(), chain_cuts().end(), cut);
  WEFT_CHECK(found != chain_cuts().end());
  return static_cast<std::size_t>(found - chain_cuts().begin()) + 1;
}

PassChain::PassChain(const StepGraph& graph, const CostModel& cost, ClassId rank_class, std::int32_t chunk,
                     bool forward) {
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!belongs(op, rank_class, chunk, forward)) continue;
    Link link;
    link.operation = make_id<OpId>(i);
    link.exchange = op.communication && op.communication->group == GroupKind::ep;
    link.of_experts = works_on_slots(op) || op.role == Role::expert_gather || op.role == Role::expert_reduce;
    link.ns.fill(-1);
    link.ns[0] = static_cast<double>(cost.alone(op).value);
    for (const ChainCut& cut : chain_cuts()) {
      if (!may_be_cut_into(graph, op, cut.parts, cut.axis)) continue;
      link.ns[index(cut)] = static_cast<double>(cost.alone(first_part(graph, link.operation, cut)).value);
    }
    links_.push_back(link);
  }
}

double PassChain::ns(std::size_t i, const ChainCut& cut) const {
  return links_[i].ns[index(cut)];
}

double PassChain::pipelined_ns(std::size_t first, std::size_t last, const ChainCut& cut) const {
  std::array<double, kMaxRowCuts> when{};
  const std::span<double> ready(when.data(), static_cast<std::size_t>(cut.parts));
  double compute = 0, exchange = 0;
  for (std::size_t i = first; i < last;) {
    const bool exchanges = links_[i].exchange;
    double each = 0;
    for (; i < last && links_[i].exchange == exchanges; ++i) each += ns(i, cut);
    double& free = exchanges ? exchange : compute;
    for (double& part : ready) part = free = std::max(free, part) + each;
  }
  return *std::max_element(ready.begin(), ready.end());
}

}  // namespace weft
