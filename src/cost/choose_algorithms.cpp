// Chooses the algorithm of every collective of a graph.
#include <map>

#include "cost/cost_model.hpp"

namespace weft {
namespace {

void choose_ring_or_tree(Operation& op, const CostModel& cost) {
  Communication& c = *op.communication;
  c.algorithm = Algorithm::ring;
  if (cost.library_has_rings_alone()) return;
  const Nanos ring = cost.transfer(op).alone();
  c.algorithm = Algorithm::tree;
  if (cost.transfer(op).alone() >= ring) c.algorithm = Algorithm::ring;
}

}  // namespace

void choose_algorithms(StepGraph& graph, const CostModel& cost) {
  // Members of one transfer must agree, so the lowest class decides for its transfer.
  std::map<std::int32_t, const Communication*> decided;
  for (Operation& op : graph.operations) {
    if (!op.communication) continue;
    Communication& c = *op.communication;
    if (const auto known = decided.find(c.transfer); known != decided.end()) {
      c.algorithm = known->second->algorithm;
      c.parts = known->second->parts;
      c.inner = known->second->inner;
      c.program = known->second->program;
      continue;
    }
    if (!cost.choose_program(op) && c.collective == Collective::all_reduce) choose_ring_or_tree(op, cost);
    if (c.transfer >= 0) decided[c.transfer] = &c;
  }
}

}  // namespace weft
