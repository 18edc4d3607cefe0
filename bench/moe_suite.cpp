// The figures of mixtures of experts: Lancet's models on its clusters under serial, tutel, lancet and weft, beside what
// the paper reports, and DeepSeek-V3 beside the released trace of DualPipe. Every plan is verified before it is timed.
//
//   moe_suite [p4de|p4de-tf32|p3dn|deepseek|deepseek-local|deepseek-direct ...] [--nodes N] [--budget SECONDS]
//   [--policy NAME]
#include <fmt/format.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <climits>
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "bound/bound.hpp"
#include "cluster/presets.hpp"
#include "model/presets.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "timeline/accounting.hpp"

namespace weft {
namespace {

struct Case {
  std::string name;
  PlanRequest request;
};

struct Outcome {
  double step_ms = 0, exposed_ms = 0, all_to_all_ms = 0, other_exposed_ms = 0, seconds = 0, wall_seconds = 0,
         memory_gib = 0;
};

// CLOCK_PROCESS_CPUTIME_ID: of all its threads together; what else the machine does does not count.
double now(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The all-to-alls of a rank as they would take alone, a step.
double all_to_all_ms(const Plan& plan, const CostModel& cost) {
  double most = 0;
  std::vector<double> by_class(plan.graph.classes.size(), 0);
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->group != GroupKind::ep || !op.per_micro_batch) continue;
    by_class[op.rank_class.index()] += 1e3 * seconds(cost.alone(op)) * static_cast<double>(plan.graph.micro_batches);
  }
  for (const double ms : by_class) most = std::max(most, ms);
  return most;
}

// What the busiest rank computes in a step.
double compute_ms(const StepGraph& graph, const CostModel& cost) {
  std::vector<double> by_class(graph.classes.size(), 0);
  for (const Operation& op : graph.operations) {
    if (op.communication) continue;
    by_class[op.rank_class.index()] +=
        1e3 * seconds(cost.least_compute(op)) * static_cast<double>(op.per_micro_batch ? graph.micro_batches : 1);
  }
  return *std::max_element(by_class.begin(), by_class.end());
}

// "layer 3 expert_in forward part 2 of 4" -> "expert_in forward".
std::string kind_of(const std::string& name) {
  std::string kind = name.substr(0, name.find(" part "));
  if (kind.starts_with("layer ")) kind = kind.substr(kind.find(' ', 6) + 1);
  return kind;
}

// What was waited for and by whom, the first rank's, longest first.
void print_exposed(const Timeline& timeline) {
  SpanIndex index(timeline);
  std::map<std::string, double> ms;
  for (const ExposedPart& part : exposed_parts(timeline, index)) {
    if (part.rank != 0) continue;
    const auto name = [&](std::int32_t operation) {
      if (operation < 0) return std::string("nobody");
      const TimelineOperation& op = timeline.operations[static_cast<std::size_t>(operation)];
      return kind_of(timeline.names[static_cast<std::size_t>(op.name)]);
    };
    ms[fmt::format("{} <- {}", name(part.transfer.operation), name(part.waiting))] +=
        static_cast<double>((part.transfer.end - part.transfer.begin).value) * 1e-6 / timeline.periods;
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [what, time] : ms) sorted.emplace_back(time, what);
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < std::min<std::size_t>(8, sorted.size()); ++i) {
    fmt::print("      {:8.1f} ms {}\n", sorted[i].first, sorted[i].second);
  }
}

bool explain_exposed = false;

Outcome evaluate(const Case& c, const SharedGraph& graph, const Cluster& cluster, const std::string& policy) {
  const double begin = now(CLOCK_PROCESS_CPUTIME_ID), wall = now(CLOCK_MONOTONIC);
  const Overlap overlap = decide_overlap(c.request, graph, policy);
  const WholePlan made = make_whole_plan(c.request, graph, policy, overlap);
  Outcome outcome;
  outcome.seconds = now(CLOCK_PROCESS_CPUTIME_ID) - begin;
  outcome.wall_seconds = now(CLOCK_MONOTONIC) - wall;
  const auto violation = verify_plan(made, {.check_memory = false});
  if (violation) fail("{} {}: {}", c.name, policy, violation->message);
  const CostModel cost(made.plan().graph, cluster, c.request.profile);
  const Timeline timeline = simulate_plan(made, cost);
  const Accounting accounting = account(timeline);
  if (explain_exposed) print_exposed(timeline);
  const double exposed = accounting.mean.exposed_by[static_cast<std::size_t>(TrafficKind::ep)];
  outcome.step_ms = timeline.period_ns * 1e-6;
  outcome.exposed_ms = 1e3 * exposed;
  outcome.other_exposed_ms = 1e3 * (accounting.mean.exposed_s - exposed);
  outcome.all_to_all_ms = all_to_all_ms(made.plan(), cost);
  for (const ClassPlan& own : made.plan().classes) {
    outcome.memory_gib = std::max(outcome.memory_gib, static_cast<double>(own.memory.value) / (1 << 30));
  }
  return outcome;
}

// `tf32`: products of fp32 run on an A100's tensor cores, as Weft's device table has it (the V100 has no such thing).
// Which of the two the paper's runs had is not known here, and the figures differ widely: both are to be reported.
Case lancet_case(const std::string& machine, std::int64_t nodes, bool large, bool tf32, double budget) {
  Case c;
  c.name = fmt::format("{} {}:{}{}", large ? "gpt2-l-moe" : "gpt2-s-moe", machine, nodes, tf32 ? " tf32" : "");
  PlanRequest& r = c.request;
  r.model = model_preset(large ? "gpt2-l-moe" : "gpt2-s-moe");
  r.cluster = parse_cluster(fmt::format("{}:{}", machine, nodes));
  if (!tf32) r.cluster.device.matrix_tflops_32 = r.cluster.device.vector_tflops_32;
  r.profile = default_profile();
  const std::int64_t devices = 8 * nodes;
  r.model.experts->count = 2 * devices;
  Layout& l = r.layout;
  l.dp = l.ep = devices;
  l.micro_batch = machine.starts_with("p4de") ? (large ? 24 : 48) : (large ? 8 : 16);
  l.global_batch = l.micro_batch * l.dp;
  l.seq = 512;
  l.precision = l.grad_dtype = ElementType::fp32;
  r.search.budget_s = budget;
  return c;
}

// 2,048 H800: 16 stages of 61 layers, EP 64 over 8 nodes, ZeRO-1, no tensor parallelism, as its report says;
// micro-batches of one sequence of 4,096.
//
// As DeepSeek has it: tokens travel to experts in fp8, cross to a node once and lie on four nodes at most. `direct`: in
// bf16, every copy by itself. Layers are computed again with their all-to-alls (full) or without (local).
Case deepseek_case(double budget, bool direct, Recompute recompute) {
  Case c;
  c.name = direct ? "deepseek-v3 h800:256, bf16, direct" : "deepseek-v3 h800:256, fp8, forwarded";
  PlanRequest& r = c.request;
  r.model = model_preset("deepseek-v3");
  r.cluster = parse_cluster("dgx-h800:256");
  r.profile = default_profile();
  Layout& l = r.layout;
  l.pp = 16;
  l.dp = 128;
  l.ep = 64;
  l.micro_batch = 1;
  l.global_batch = l.dp * 120;
  l.seq = 4096;
  l.zero = 1;
  l.recompute = recompute;
  l.dispatch_fp8 = l.ep_forwarding = !direct;
  r.search.budget_s = budget;
  return c;
}

void add_simulation(PlanRequest& request, const Cluster& cluster) {
  request.search.jobs = std::max(1U, std::thread::hardware_concurrency());
  request.search.step_seconds = [&request, &cluster](const WholePlan& made) {
    const CostModel cost(made.plan().graph, cluster, request.profile);
    return simulated_period_ns(made, cost) * 1e-9;
  };
}

void run(Case c, const std::vector<std::string>& policies) {
  const Cluster cluster(c.request.cluster);
  add_simulation(c.request, cluster);
  const SharedGraph graph = build_step_graph(c.request.model, cluster, c.request.layout);
  const CostModel cost(graph, cluster, c.request.profile);
  const StepBound bound = step_bound(graph, cost);
  std::map<std::string, Outcome> outcomes;
  // A step is at least the bound. Compute takes no more of it than all of it slowed by transfers; the rest is exposed.
  // In a pipeline it may be a bubble as well, so nothing is said there.
  const double slowed = compute_ms(graph, cost) * (1 + cost.interference(make_id<ClassId>(0)).compute);
  const double least_exposed = c.request.layout.pp > 1 ? 0.0 : std::max(0.0, 1e3 * bound.seconds - slowed);
  fmt::print("{}: bound {:.1f} ms; no order exposes less than {:.1f} ms\n", c.name, 1e3 * bound.seconds, least_exposed);
  for (const std::string& policy : policies) {
    const Outcome& o = outcomes[policy] = evaluate(c, graph, cluster, policy);
    if (1e3 * bound.seconds > o.step_ms * (1 + 1e-6)) fail("{} {}: the step is below the bound", c.name, policy);
    const auto against = [&](const char* other) {
      const auto found = outcomes.find(other);
      if (found == outcomes.end()) return std::string();
      return fmt::format("  {:.3f}x {}, exposed {:+.0f} %", found->second.step_ms / o.step_ms, other,
                         100 * (o.exposed_ms / std::max(1e-9, found->second.exposed_ms) - 1));
    };
    fmt::print(
        "  {:7} step {:8.1f} ms  all-to-all {:7.1f}  exposed {:7.1f} ({:4.1f} %)  other exposed {:6.1f}  "
        "{:5.1f} GiB  planned in {:5.2f} s ({:5.2f} s of CPU){}{}\n",
        policy, o.step_ms, o.all_to_all_ms, o.exposed_ms, 100 * o.exposed_ms / std::max(1e-9, o.all_to_all_ms),
        o.other_exposed_ms, o.memory_gib, o.wall_seconds, o.seconds, policy == "serial" ? "" : against("serial"),
        policy == "lancet" || policy == "weft" ? against("tutel") : "");
    if (const auto serial = outcomes.find("serial"); policy == "weft" && serial != outcomes.end()) {
      const double before = serial->second.exposed_ms + serial->second.other_exposed_ms;
      fmt::print("          of all that serial exposes {:.1f} % removed; no order removes more than {:.1f} %\n",
                 100 * (1 - (o.exposed_ms + o.other_exposed_ms) / std::max(1e-9, before)),
                 100 * (1 - least_exposed / std::max(1e-9, before)));
    }
    std::fflush(stdout);
  }
}

int run_all(const std::vector<std::string>& arguments) {
  std::vector<std::string> machines;
  std::vector<std::int64_t> nodes{1, 2, 4, 8};
  double budget = 10;
  std::vector<std::string> policies{"serial", "tutel", "lancet", "weft"};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--nodes" && i + 1 < arguments.size()) {
      nodes = {std::stoll(arguments[++i])};
    } else if (arguments[i] == "--explain") {
      explain_exposed = true;
    } else if (arguments[i] == "--policy" && i + 1 < arguments.size()) {
      policies = {arguments[++i]};
    } else if (arguments[i] == "--budget" && i + 1 < arguments.size()) {
      budget = std::stod(arguments[++i]);
    } else {
      machines.push_back(arguments[i]);
    }
  }
  if (machines.empty()) machines = {"p4de-tf32", "p4de", "p3dn", "deepseek", "deepseek-direct"};
  for (const std::string& machine : machines) {
    if (machine.starts_with("deepseek")) {
      run(deepseek_case(budget, machine == "deepseek-direct",
                        machine == "deepseek-local" ? Recompute::local : Recompute::full),
          policies);
      continue;
    }
    for (const bool large : {false, true}) {
      for (const std::int64_t n : nodes) {
        const bool tf32 = machine == "p4de-tf32";
        run(lancet_case(tf32 ? "p4de" : machine, n, large, tf32, budget), policies);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
#ifdef __GLIBC__  // as the program itself does (src/app/main.cpp)
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
  try {
    return weft::run_all({argv + 1, argv + argc});
  } catch (const weft::Error& error) {
    fmt::print(stderr, "moe_suite: {}\n", error.what());
    return 1;
  }
}
