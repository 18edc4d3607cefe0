#include "study/plan/userbuffer_uses.hpp"

#include <algorithm>
#include <map>

#include "cost/cost_model.hpp"
#include "graph/userbuffers.hpp"

namespace weft {
namespace {

std::string_view userbuffer_method(const Operation& transfer, LinearPass pass) {
  if (transfer.communication->mover.copy_engine) return name_of(UserbufferMethod::ring_exchange);
  return name_of(default_userbuffers().of(pass).method);
}

}  // namespace

std::vector<UserbufferRow> userbuffer_rows(const Plan& plan, const Profile& profile) {
  const Cluster cluster(plan.cluster);
  const CostModel cost(plan.graph, cluster, profile);
  std::map<LinearPass, UserbufferRow> rows;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    const std::optional<LinearPass> pass = linear_pass(op);
    if (!pass || op.communication->mover.is_library()) continue;
    const Communication& c = *op.communication;
    UserbufferRow& row = rows[*pass];
    if (c.bytes.value <= row.bytes.value) continue;
    row = {.product = std::string(name_of(*pass)),
           .method = std::string(userbuffer_method(op, *pass)),
           .collective = std::string(name_of(c.collective)),
           .copy_engine = c.mover.copy_engine,
           .thread_blocks = c.mover.thread_blocks,
           .device_units = plan.graph.classes[op.rank_class].device.compute_units,
           .bytes = c.bytes,
           .time = cost.alone(op),
           .slowdown = cost.interference(op).compute};
    for (const Origin& origin : op.origins) row.parts = std::max(row.parts, origin.of / (origin.end - origin.begin));
  }
  std::vector<UserbufferRow> result;
  for (auto& [pass, row] : rows) result.push_back(std::move(row));
  return result;
}

std::size_t policy_with_userbuffers(const PlanStudy& study, const Profile& profile) {
  std::size_t policy = 0;
  while (policy < study.policies.size() && userbuffer_rows(study.policies[policy].plan(), profile).empty()) ++policy;
  return policy;
}

}  // namespace weft
