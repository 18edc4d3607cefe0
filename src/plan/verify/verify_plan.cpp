#include "plan/verify/verify_plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/happens_before.hpp"
#include "plan/memory/use.hpp"
#include "plan/verify/hazards.hpp"
#include "plan/verify/programs.hpp"
#include "plan/verify/provenance.hpp"
#include "plan/verify/windows.hpp"

namespace weft {
namespace {

std::string_view reason(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::data:
      return "reads what it writes";
    case EdgeKind::queue:
      return "comes after it in its queue";
    case EdgeKind::reuse:
      return "writes where it may still be reading or writing";
    case EdgeKind::wait:
      return "is told to wait for it";
    case EdgeKind::blocking:
      return "is issued after it and one of the two blocks";
  }
  return "?";
}

// Returns the edge by which `waiting` waits for the transfer or operation that `other` belongs to.
const Edge& edge_between(const Unfolded& unfolded, InstanceId waiting, InstanceId other) {
  const JointId joint = unfolded.instances()[other].joint;
  const std::span<const Edge> edges = unfolded.waits_for(waiting);
  const auto found = std::find_if(edges.begin(), edges.end(), [&](const Edge& edge) {
    const JointId from_joint = unfolded.instances()[edge.from].joint;
    return edge.distance == 0 && (edge.from == other || (joint.valid() && from_joint == joint));
  });
  WEFT_CHECK(found != edges.end());
  return *found;
}

std::optional<Violation> check_deadlock(const WholePlan& whole, const RunOrder& order) {
  if (order.cycle.empty()) return std::nullopt;
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  const auto name = [&](InstanceId i) { return describe(plan, unfolded.instances()[i]); };
  std::string text = "deadlock: no operation of this cycle can ever start";
  constexpr std::size_t kShown = 8;
  for (std::size_t i = 0; i < order.cycle.size() && i < kShown; ++i) {
    const InstanceId waiting = order.cycle[i], next = order.cycle[(i + 1) % order.cycle.size()];
    const Edge& edge = edge_between(unfolded, waiting, next);
    text += fmt::format("\n  [{}] waits for [{}]: it {}", name(waiting), name(edge.from), reason(edge.kind));
    // The cycle goes on at another member of the transfer.
    if (edge.from != next) text += fmt::format("; that is one transfer with [{}]", name(next));
  }
  if (order.cycle.size() > kShown) text += fmt::format("\n  ... and {} more", order.cycle.size() - kShown);
  return Violation{Rule::deadlock, text};
}

std::optional<Violation> check_memory(const Plan& plan, const VerifyOptions& options) {
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const RankClass& rank_class = plan.graph.classes[c];
    const Bytes limit = options.memory_limit.value > 0 ? options.memory_limit : rank_class.device.memory;
    if (plan.classes[c].memory <= limit) continue;
    std::string terms;
    const std::vector<MemoryUse> use = memory_use(plan);
    for (const MemoryTerm& term : use[c].terms) {
      if (!terms.empty()) terms += ", ";
      terms += fmt::format("{} {}", term.name, format_bytes(term.bytes));
    }
    return Violation{Rule::memory, fmt::format("memory: {} needs {} but a {} has {} ({})", rank_class.name,
                                               format_bytes(plan.classes[c].memory), rank_class.device.name,
                                               format_bytes(limit), terms)};
  }
  return std::nullopt;
}

std::optional<Violation> check_unfolded(const WholePlan& whole, const VerifyOptions& options) {
  const Plan& plan = whole.plan();
  if (auto violation = check_algorithms(plan)) return violation;
  if (auto violation = check_carried_programs(plan)) return violation;
  if (auto violation = check_queues(plan)) return violation;
  if (auto violation = check_collective_order(whole)) return violation;
  const RunOrder order = find_run_order(whole.unfolded());
  if (auto violation = check_deadlock(whole, order)) return violation;
  if (auto violation = check_windows(whole, order.order)) return violation;
  if (auto violation = check_hazards(whole, order.order)) return violation;
  return options.check_memory ? check_memory(plan, options) : std::nullopt;
}

}  // namespace

std::string_view name_of(Rule rule) {
  switch (rule) {
    case Rule::provenance:
      return "provenance";
    case Rule::collective_order:
      return "collective order";
    case Rule::program:
      return "program";
    case Rule::deadlock:
      return "deadlock";
    case Rule::window:
      return "window";
    case Rule::hazard:
      return "hazard";
    case Rule::memory:
      return "memory";
  }
  return "?";
}

std::optional<Violation> verify_plan(const WholePlan& whole, const VerifyOptions& options) {
  if (auto violation = check_provenance(whole.plan(), whole.original())) return violation;
  return check_unfolded(whole, options);
}

CheckedPlan check_plan(Plan plan, const VerifyOptions& options) {
  SharedGraph original = build_step_graph(plan.model, Cluster(plan.cluster), plan.layout);
  if (auto violation = check_provenance(plan, original)) return {.violation = std::move(violation)};
  CheckedPlan checked;
  try {
    checked.whole.emplace(std::move(plan), std::move(original));
  } catch (const Error& error) {  // an operation issued twice or never, or to a queue that is not there
    return {.violation = Violation{Rule::provenance, error.what()}};
  }
  checked.violation = check_unfolded(*checked.whole, options);
  return checked;
}

}  // namespace weft
