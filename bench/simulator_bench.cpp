// How fast is the simulator? Operations really simulated a second on one core with folding off, and as a ratio to the
// least any simulator must do: one pass over the same dependencies that computes when each operation could start
// (measured in the same run, and used to check the answer: with neither shared links nor interference both must agree
// on every start). Then what folding saves: how many operations an event stands for, and the ratio of the times, which
// must lead to the same step. Last, a plan evaluated as `weft plan` and searches do it: simulation, accounting and
// critical path, from an unfolded plan.
#include <fmt/format.h>
#include <sys/utsname.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cluster/presets.hpp"
#include "model/presets.hpp"
#include "plan/happens_before.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_folded.hpp"
#include "sim/simulate_plan.hpp"
#include "timeline/accounting.hpp"
#include "timeline/critical_path.hpp"

namespace weft {
namespace {

// Of this process: what else the machine does does not count.
double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Case {
  const char* name;
  const char* model;
  const char* cluster;
  std::int64_t tp, pp, dp, global_batch;
};

// The first iteration's starts by longest path, in an order that respects dependencies.
std::vector<std::int64_t> longest_path(const SimProblem& problem, const std::vector<InstanceId>& order,
                                       const Unfolded& unfolded) {
  std::vector<std::int64_t> start(problem.operations.size(), 0), end(problem.operations.size(), 0);
  for (const InstanceId id : order) {
    const std::int32_t i = id.value;
    const SimOperation& op = problem.operations[i];
    std::int64_t begin = 0;
    const auto wait = [&](std::int32_t member) {
      const auto m = static_cast<std::size_t>(member);
      for (std::int32_t e = problem.edge_begin[m]; e < problem.edge_begin[m + 1]; ++e) {
        const Dependency& edge = problem.edges[e];
        if (edge.distance == 0) begin = std::max(begin, end[edge.operation]);
      }
    };
    if (!op.joint.valid()) {
      wait(i);
    } else {
      for (const InstanceId member : unfolded.members(op.joint)) wait(member.value);
    }
    const SimCost& cost = problem.costs[op.cost];
    start[i] = begin;
    end[i] = begin + cost.fixed.value + cost.moving.value;
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
  const WholePlan whole = make_whole_plan(request, build_step_graph(request.model, cluster, l), "serial");
  const double t1 = now();
  const CostModel cost(whole.plan().graph, cluster, request.profile);
  SimProblem problem = sim_problem(whole, cost);
  for (SimCost& simulated : problem.costs) simulated.use.clear();
  const RunOrder order = find_run_order(whole.unfolded());

  const double t2 = now();
  const std::vector<std::int64_t> expected = longest_path(problem, order.order, whole.unfolded());
  const double t3 = now();
  const FoldedResult plain = simulate_folded(problem, {.fold = false});
  const double t4 = now();
  const FoldedResult folded = simulate_folded(problem);
  const double t5 = now();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (plain.iterations.front().start[i].value != expected[i]) {
      fmt::print("{}: WRONG: operation {} starts at {}, must be {}\n", c.name, i,
                 plain.iterations.front().start[i].value, expected[i]);
      return false;
    }
  }
  if (folded.period_ns != plain.period_ns || folded.iterations.size() != plain.iterations.size()) {
    fmt::print("{}: WRONG: a folded step of {} ns, must be {}\n", c.name, folded.period_ns, plain.period_ns);
    return false;
  }
  const double t6 = now();
  const Timeline timeline = simulate_plan(whole, cost);
  SpanIndex index(timeline);
  const double step = account(timeline, index).mean.step_s;
  const std::size_t steps = critical_path(timeline, index).size();
  const double t7 = now();
  if (!(step > 0) || steps == 0) return false;
  const double pass = (t3 - t2) * static_cast<double>(plain.iterations.size());
  utsname machine{};
  uname(&machine);
  fmt::print(
      "{{\"bench\": \"simulator\", \"case\": \"{}\", \"operations\": {}, \"iterations\": {}, \"plan_s\": {:.3f}, "
      "\"simulate_s\": {:.4f}, \"operations_per_s\": {:.0f}, \"times_the_bare_pass\": {:.1f}, \"folded_s\": {:.4f}, "
      "\"folded_speedup\": {:.1f}, \"operations_per_event\": {:.1f}, \"evaluate_s\": {:.4f}, \"machine\": \"{}\"}}\n",
      c.name, problem.operations.size(), plain.iterations.size(), t1 - t0, t4 - t3,
      static_cast<double>(plain.work.simulated) / (t4 - t3), (t4 - t3) / pass, t5 - t4, (t4 - t3) / (t5 - t4),
      static_cast<double>(folded.work.operations) / static_cast<double>(folded.work.simulated), t7 - t6,
      machine.machine);
  return true;
}

}  // namespace
}  // namespace weft

int main() {
  const weft::Case cases[] = {
      {"llama2-70b, 64 A100", "llama2-70b", "dgx-a100:8", 8, 4, 2, 128},
      {"gpt3-175b, 1024 A100", "gpt3-175b", "dgx-a100:128", 8, 16, 8, 1536},
      {"mt-nlg-530b, 2240 A100, 3 micro-batches", "mt-nlg-530b", "dgx-a100:280", 8, 35, 8, 24},
  };
  bool right = true;
  for (const weft::Case& c : cases) right = weft::run(c) && right;
  return right ? 0 : 1;
}
