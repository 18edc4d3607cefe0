// How fast is the simulator? Operations really simulated a second on one core, and as a ratio to the least any
// simulator must do: one pass over the same dependencies that computes when each operation could start (measured in the
// same run, and used to check the answer: with neither shared links nor interference both must agree on every start).
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "cluster/presets.hpp"
#include "model/presets.hpp"
#include "plan/policy/policy.hpp"
#include "plan/verify/order.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Case {
  const char* name;
  const char* model;
  const char* cluster;
  std::int64_t tp, pp, dp, global_batch;
};

// The first iteration's starts by longest path, in an order that respects dependencies.
std::vector<std::int64_t> longest_path(const SimProblem& problem, const std::vector<std::int32_t>& order,
                                       const Unfolded& unfolded) {
  std::vector<std::int64_t> start(problem.operations.size(), 0), end(problem.operations.size(), 0);
  for (const std::int32_t i : order) {
    const SimOperation& op = problem.operations[static_cast<std::size_t>(i)];
    std::int64_t begin = 0;
    const auto wait = [&](std::int32_t member) {
      const auto m = static_cast<std::size_t>(member);
      for (std::int64_t e = problem.edge_begin[m]; e < problem.edge_begin[m + 1]; ++e) {
        const SimEdge& edge = problem.edges[static_cast<std::size_t>(e)];
        if (edge.distance == 0) begin = std::max(begin, end[static_cast<std::size_t>(edge.from)]);
      }
    };
    if (op.joint < 0) {
      wait(i);
    } else {
      for (const std::int32_t member : unfolded.members(static_cast<std::size_t>(op.joint))) wait(member);
    }
    const SimCost& cost = problem.costs[static_cast<std::size_t>(op.cost)];
    start[static_cast<std::size_t>(i)] = begin;
    end[static_cast<std::size_t>(i)] = begin + cost.fixed.value + cost.moving.value;
  }
  return start;
}

bool run(const Case& c) {
  PlanRequest request;
  request.model = model_preset(c.model);
  request.cluster = parse_cluster(c.cluster);
  request.profile = default_profile();
  request.cluster.device.compute_slowdown = request.cluster.device.transfer_slowdown = 0;
  Layout& l = request.layout;
  l.tp = c.tp;
  l.pp = c.pp;
  l.dp = c.dp;
  l.global_batch = c.global_batch;
  l.seq = 2048;
  l.zero = 1;
  const Cluster cluster(request.cluster);
  const double t0 = now();
  const StepGraph graph = build_step_graph(request.model, cluster, l);
  const Plan plan = make_plan(request, graph, "serial");
  const double t1 = now();
  const CostModel cost(plan.graph, cluster, request.profile);
  const Unfolded unfolded(plan);
  SimProblem problem = sim_problem(plan, unfolded, cost);
  for (SimCost& simulated : problem.costs) simulated.use.clear();
  const RunOrder order = find_run_order(unfolded);

  const double t2 = now();
  const std::vector<std::int64_t> expected = longest_path(problem, order.order, unfolded);
  const double t3 = now();
  const SimResult result = simulate(problem);
  const double t4 = now();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (result.iterations.front()[i].start.value != expected[i]) {
      fmt::print("{}: WRONG: operation {} starts at {}, must be {}\n", c.name, i,
                 result.iterations.front()[i].start.value, expected[i]);
      return false;
    }
  }
  const auto simulated = static_cast<double>(problem.operations.size() * result.iterations.size());
  const double pass = (t3 - t2) * static_cast<double>(result.iterations.size());
  utsname machine{};
  uname(&machine);
  fmt::print(
      "{{\"bench\": \"simulator\", \"case\": \"{}\", \"operations\": {}, \"iterations\": {}, \"plan_s\": {:.3f}, "
      "\"simulate_s\": {:.3f}, \"operations_per_s\": {:.0f}, \"times_the_bare_pass\": {:.1f}, \"machine\": \"{}\"}}\n",
      c.name, problem.operations.size(), result.iterations.size(), t1 - t0, t4 - t3, simulated / (t4 - t3),
      (t4 - t3) / pass, machine.machine);
  return true;
}

}  // namespace
}  // namespace weft

int main() {
  const weft::Case cases[] = {
      {"llama2-70b, 64 A100", "llama2-70b", "dgx-a100:8", 8, 4, 2, 128},
      {"gpt3-175b, 1024 A100", "gpt3-175b", "dgx-a100:128", 8, 16, 8, 1536},
  };
  bool right = true;
  for (const weft::Case& c : cases) right = weft::run(c) && right;
  return right ? 0 : 1;
}
