#include "cost/expert_sizes.hpp"

#include <algorithm>
#include <cmath>

#include "graph/operation_part.hpp"

namespace weft {
namespace {

// The number of a rank's own tokens is known.
bool is_of_own_tokens(const Operation& op) {
  return op.role == Role::dispatch || op.role == Role::combine;
}

bool is_cut_by_tokens(const Operation& op) {
  return works_on_slots(op) && !is_of_own_tokens(op) && is_part(op) && op.origins.front().axis == kTokenAxis;
}

bool is_weight_grad_of_experts(const Operation& op) {
  return op.phase == Phase::weight_grad && (op.role == Role::expert_in || op.role == Role::expert_out) &&
         !op.is_transfer();
}

}  // namespace

ExpertSizes::ExpertSizes(const StepGraph& graph, std::optional<ExpertLoad> measured)
    : graph_(graph), measured_(measured) {
  if (graph.tokens.routed.experts == 0) return;
  for (const Operation& op : graph.operations) {
    if (is_cut_by_tokens(op)) cut_by_tokens_.insert({op.rank_class.value, op.layer});
  }
}

bool ExpertSizes::are_data(const Operation& op) const {
  const bool uneven = graph_.tokens.routed.uneven;
  if (is_weight_grad_of_experts(op)) return uneven || cut_by_tokens_.contains({op.rank_class.value, op.layer});
  if (!works_on_slots(op) || is_of_own_tokens(op)) return false;
  return is_part(op) ? is_cut_by_tokens(op) : uneven;
}

double ExpertSizes::copies(const Operation& op) const {
  return static_cast<double>(graph_.tokens.rows_of(op.turn) * graph_.tokens.routed.top_k);
}

double ExpertSizes::filled(const Operation& op) const {
  return std::min(1.0, copies(op) / static_cast<double>(graph_.tokens.slots_of(op.turn)));
}

// Without a measurement: of n ranks that each receive M rows by chance, the fullest gets about M + sqrt(2 M ln n) (the
// largest of n normal deviates), and the others wait for it. The capacity limits it.
double ExpertSizes::load(const Operation& op) const {
  if (measured_) return op.is_transfer() ? measured_->exchanged : measured_->computed;
  double rows = copies(op);
  if (is_part(op)) {
    const Origin& part = op.origins.front();
    rows *= static_cast<double>(part.end - part.begin) / static_cast<double>(part.of);
  }
  const auto ranks = static_cast<double>(graph_.classes[op.rank_class.index()].group(GroupKind::ep).view.size);
  return std::min(1 / filled(op), 1 + std::sqrt(2 * std::log(ranks) / rows));
}

// Parts have, and are measured with, the sizes of balanced loads; whole operations have those of all slots.
double ExpertSizes::factor(const Operation& op, bool measured) const {
  const bool of_slots = works_on_slots(op) || is_weight_grad_of_experts(op);
  if (!of_slots || is_of_own_tokens(op)) return 1;
  const double when_measured = measured && measured_ && !is_part(op) ? measured_->filled : 1;
  if (!are_data(op)) return 1 / when_measured;
  if (is_part(op)) return measured && !measured_ ? 1 : load(op);
  return filled(op) / when_measured * load(op);
}

double ExpertSizes::least_load(const Operation& op) const {
  return measured_ && graph_.tokens.routed.in_token_order && !is_of_own_tokens(op) ? std::min(1.0, load(op)) : 1;
}

double ExpertSizes::least_of_weight_grad(const Operation& op) const {
  const bool cuttable = graph_.tokens.routed.in_token_order && is_weight_grad_of_experts(op);
  return cuttable ? filled(op) * least_load(op) : 1;
}

}  // namespace weft
