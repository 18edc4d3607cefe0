#include "study/plan/sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "cost/cost_model.hpp"
#include "graph/memory_bound.hpp"
#include "graph/rank_class_cache.hpp"
#include "planner/memory_needs.hpp"
#include "planner/overlap.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

// One cluster of the sweep and what its layouts share.
struct SweptCluster {
  explicit SweptCluster(const ClusterSpec& spec) : cluster(spec), classes(cluster) {
    largest_memory = spec.device.memory;
    for (const NodeOverride& node : spec.overrides) {
      if (node.device) largest_memory = std::max(largest_memory, node.device->memory);
    }
  }
  Cluster cluster;
  RankClassCache classes;
  Bytes largest_memory;
};

// Combinations that differ in nothing but the policy: they share a graph, unless their layouts are decided for each.
struct Unit {
  SweepChoice choice;
  std::size_t model = 0;  // index into Evaluator::models_
  std::size_t cluster = 0;
  std::vector<std::size_t> rows;
};

// Returns as text which values the varied keys of one kind have; "" where none of them is varied.
std::string varied_text(const SweepSpec& spec, const SweepChoice& choice, bool (*belongs)(const SweepKey&)) {
  std::string text;
  for (std::size_t k = 0; k < spec.keys.size(); ++k) {
    if (belongs(spec.keys[k])) text += spec.keys[k].name + "=" + spec.keys[k].values[choice[k]] + ",";
  }
  return text;
}

bool changes_model(const SweepKey& key) {
  return key.name == "seq";  // the positions of a model made of shape flags
}

bool changes_cluster(const SweepKey& key) {
  return is_cluster_key(key.name) || key.name == "memory";
}

class Evaluator {
 public:
  Evaluator(Sweep& sweep, const SweepSource& source, const Profile& profile)
      : sweep_(sweep), source_(source), profile_(profile) {}

  // Asks for models and clusters once for all combinations that share them.
  void prepare() {
    std::map<std::string, std::size_t> model_of, cluster_of;
    std::map<SweepChoice, std::size_t> unit_of;
    const std::size_t policy = sweep_.spec.find("policy");
    for (std::size_t i = 0; i < sweep_.spec.combinations(); ++i) {
      SweepRow row;
      row.combination = i;
      row.choice = sweep_.spec.choice(i);
      SweepChoice shared = row.choice;
      if (!source_.decide) shared[policy] = 0;
      const auto [it, added] = unit_of.try_emplace(shared, units_.size());
      if (added) units_.push_back(make_unit(row.choice, model_of, cluster_of));
      units_[it->second].rows.push_back(i);
      sweep_.rows.push_back(std::move(row));
    }
  }

  std::size_t units() const { return units_.size(); }

  // Returns how many combinations it settled.
  std::size_t evaluate(std::size_t index) {
    Unit& unit = units_[index];
    const auto settle = [&](const std::string& reason) {
      for (const std::size_t row : unit.rows) sweep_.rows[row].reason = reason;
    };
    try {
      Transformer model = *models_[unit.model];
      SweptCluster& machine = *clusters_[unit.cluster];
      const Layout layout = source_.layout(unit.choice, machine.cluster, model);
      const Bytes least = memory_lower_bound(model, layout).total();
      const bool may_move_layers = source_.decide && layout.pp > 1;  // then other stages may need less
      if (least > machine.largest_memory && !may_move_layers) {
        for (const std::size_t row : unit.rows) sweep_.rows[row].fits = false;
        settle(fmt::format("needs at least {} of {}", format_bytes(least), format_bytes(machine.largest_memory)));
      } else {
        Inputs inputs{model, machine.cluster.spec(), layout, source_.options, source_.budget_s};
        if (source_.decide) {
          const std::string decided = source_.decide(unit.choice, inputs);
          for (const std::size_t row : unit.rows) sweep_.rows[row].decided = decided;
        }
        const RankClasses& classes = machine.classes.find(inputs.layout, model_groups(model, inputs.layout));
        const SharedGraph graph = build_step_graph(model, machine.cluster, inputs.layout, classes);
        evaluate_policies(request_of(inputs, profile_), graph, machine.cluster, unit.rows);
      }
    } catch (const Error& error) {
      settle(error.what());
    }
    return unit.rows.size();
  }

 private:
  Unit make_unit(const SweepChoice& choice, std::map<std::string, std::size_t>& model_of,
                 std::map<std::string, std::size_t>& cluster_of) {
    Unit unit;
    unit.choice = choice;
    const auto [model, new_model] =
        model_of.try_emplace(varied_text(sweep_.spec, choice, changes_model), models_.size());
    if (new_model) models_.push_back(std::make_unique<Transformer>(source_.model(choice)));
    const auto [cluster, new_cluster] =
        cluster_of.try_emplace(varied_text(sweep_.spec, choice, changes_cluster), clusters_.size());
    if (new_cluster) clusters_.push_back(std::make_unique<SweptCluster>(source_.cluster(choice)));
    unit.model = model->second;
    unit.cluster = cluster->second;
    return unit;
  }

  // Policies that decide the same for a layout (at ZeRO 3 many do) have one plan: it is made and simulated once.
  void evaluate_policies(const PlanRequest& request, const SharedGraph& graph, const Cluster& cluster,
                         const std::vector<std::size_t>& rows) const {
    struct Done {
      Overlap overlap;
      std::size_t row;
    };
    std::vector<Done> all_done;
    const std::size_t key = sweep_.spec.find("policy");
    for (const std::size_t index : rows) {
      SweepRow& row = sweep_.rows[index];
      const std::string& policy = sweep_.spec.keys[key].values[row.choice[key]];
      try {
        Overlap overlap = decide_overlap(request, graph, policy);
        const auto same =
            std::find_if(all_done.begin(), all_done.end(), [&](const Done& done) { return done.overlap == overlap; });
        if (same != all_done.end()) {
          copy_results(sweep_.rows[same->row], row);
          continue;
        }
        evaluate_plan(make_whole_plan(request, graph, policy, overlap), request, cluster, row);
        all_done.push_back({std::move(overlap), index});
      } catch (const Error& error) {
        row.reason = error.what();
      }
    }
  }

  static void copy_results(const SweepRow& from, SweepRow& to) {
    to.figures = from.figures;
    to.memory_peak = from.memory_peak;
    to.fits = from.fits;
    to.tight = from.tight;
    to.reason = from.reason;
  }

  void evaluate_plan(const WholePlan& made, const PlanRequest& request, const Cluster& cluster, SweepRow& row) const {
    if (!note_memory(made.plan(), row)) return;
    const Timeline timeline = simulate_plan(made, CostModel(made.plan().graph, cluster, profile_), {.names = false});
    const RankAccount mean = account(timeline).mean;
    SweepFigures figures;
    figures.step_s = timeline.period_ns * 1e-9;
    const Throughput throughput = throughput_of(request.model, request.layout, made.original(), figures.step_s);
    figures.tokens_per_s = throughput.tokens_per_s;
    figures.tflops_per_gpu = throughput.whole.tflops_per_gpu;
    figures.mfu = throughput.whole.mfu;
    figures.exposed_comm_s = mean.exposed_s;
    figures.hidden_pct = hidden_pct(mean);
    figures.bubble_s = mean.bubble_s;
    row.figures = figures;
  }

  // Returns whether the plan fits. If not, the reason is the stage that needs the largest share of its device.
  bool note_memory(const Plan& plan, SweepRow& row) const {
    const MemoryVerdict memory = judge_memory(plan, profile_);
    row.memory_peak = memory.needed;
    row.fits = memory.fits;
    row.tight = memory.fits && memory.share > kTightMemory;
    if (memory.fits) return true;
    row.reason = fmt::format("needs {} of {}", format_bytes(memory.worst.needed), format_bytes(memory.worst.available));
    return false;
  }

  Sweep& sweep_;
  const SweepSource& source_;
  const Profile& profile_;
  std::vector<std::unique_ptr<Transformer>> models_;
  std::vector<std::unique_ptr<SweptCluster>> clusters_;
  std::vector<Unit> units_;
};

}  // namespace

std::vector<std::size_t> Sweep::ranking() const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].figures) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rows[a].figures->tokens_per_s > rows[b].figures->tokens_per_s;
  });
  return order;
}

std::string Sweep::describe(const SweepRow& row) const {
  std::string text;
  for (std::size_t k = 0; k < spec.keys.size(); ++k) {
    text += fmt::format("{}{}={}", k == 0 ? "" : " ", spec.keys[k].name, spec.keys[k].values[row.choice[k]]);
  }
  return text + (row.decided.empty() ? "" : fmt::format(" ({})", row.decided));
}

Sweep run_sweep(SweepSpec spec, const SweepSource& source, const Profile& profile, const SweepOptions& options) {
  WEFT_CHECK(spec.find("policy") < spec.keys.size());
  Sweep sweep;
  sweep.spec = std::move(spec);
  const auto start = std::chrono::steady_clock::now();
  Evaluator evaluator(sweep, source, profile);
  evaluator.prepare();
  {
    TaskProgress progress(options.on_progress, "sweep", sweep.rows.size());
    parallel_for(evaluator.units(), options.jobs, [&](std::size_t i) { progress.advance(evaluator.evaluate(i)); });
  }
  sweep.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return sweep;
}

}  // namespace weft
