// How far are predictions from published measurements? Every row goes through the same code as `weft plan` with the
// flags shown by --rows; one set of constants serves all of them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/cost_model.hpp"
#include "plan/memory/use.hpp"
#include "planner/policy/policy.hpp"
#include "published_rows.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {
namespace {

double predicted(const PublishedRow& row) {
  Flags flags("plan", "", "");
  declare_input_flags(flags);
  flags.value("policy", "A", "");
  flags.parse(split(row.flags, ' '));
  const Inputs inputs = read_inputs(flags);
  const Profile profile = read_profile(flags);
  const Cluster cluster(inputs.cluster);
  const StepGraph graph = build_step_graph(inputs.model, cluster, inputs.layout);
  const PlanRequest request{inputs.model, inputs.cluster, inputs.layout, profile, inputs.options};
  Overlap overlap = decide_overlap(request, graph, *flags.text("policy"));
  overlap.order.pipeline.most_held = row.most_held;
  const Plan plan = make_whole_plan(request, SharedGraph(graph), *flags.text("policy"), overlap).plan();
  if (row.measure == Measure::activations_gib) {
    const MemoryUse first = memory_use(plan).front();
    for (const MemoryTerm& term : first.terms) {
      if (term.name == "activations") return static_cast<double>(term.bytes.value) / (1 << 30);
    }
    return 0;
  }
  if (row.measure == Measure::peak_memory_gib) {
    Bytes peak;
    for (const ClassPlan& c : plan.classes) peak = std::max(peak, c.memory);
    return static_cast<double>(peak.value) / (1 << 30);
  }
  return simulate_plan(WholePlan(plan), CostModel(plan.graph, cluster, profile)).period_ns * 1e-9;
}

std::vector<double> errors_of(const PublishedSet& set) {
  std::vector<double> errors(set.rows.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = next++; i < set.rows.size(); i = next++) {
        errors[i] = 100 * (predicted(set.rows[i]) / set.rows[i].measured - 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void report(const PublishedSet& set, bool all_rows) {
  constexpr double kMinNamedErrorPct = 20;
  const std::vector<double> errors = errors_of(set);
  std::vector<double> sizes;
  double sum = 0, bias = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    sizes.push_back(std::abs(errors[i]));
    sum += sizes.back();
    bias += errors[i];
    if (all_rows)
      fmt::print("  {:+6.1f} %  {}\n            weft plan {}\n", errors[i], set.rows[i].name, set.rows[i].flags);
  }
  if (errors.empty()) return;
  std::sort(sizes.begin(), sizes.end());
  const auto n = static_cast<double>(errors.size());
  fmt::print(
      "{{\"bench\": \"accuracy\", \"set\": \"{}\", \"rows\": {}, \"median_pct\": {:.2f}, \"mean_pct\": {:.2f}, "
      "\"worst_pct\": {:.1f}, \"bias_pct\": {:+.2f}}}\n",
      set.name, errors.size(), sizes[sizes.size() / 2], sum / n, sizes.back(), bias / n);
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!all_rows && std::abs(errors[i]) > kMinNamedErrorPct)
      fmt::print("  {:+6.1f} %  {}\n", errors[i], set.rows[i].name);
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const bool all_rows = argc > 1 && std::strcmp(argv[1], "--rows") == 0;
  const std::vector<weft::PublishedSet> sets = weft::published_sets(WEFT_SOURCE_DIR "/../shared/data/published");
  if (sets.empty()) fmt::print("accuracy: skipped, ../shared/data/published is not here\n");
  try {
    for (const weft::PublishedSet& set : sets) weft::report(set, all_rows);
  } catch (const weft::Error& error) {
    fmt::print(stderr, "accuracy: {}\n", error.what());
    return 1;
  }
}
