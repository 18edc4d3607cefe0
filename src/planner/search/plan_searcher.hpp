// The search of policy `weft`. It starts from good points of the decision space, changes one dimension after the other,
// and simulates every candidate. Large steps are searched with fewer micro-batches, which show the worth of a layer's
// order as well as many do.
#pragma once

#include <map>
#include <vector>

#include "planner/overlap.hpp"
#include "planner/search/decisions.hpp"

namespace weft {

class PlanSearcher {
 public:
  // `request` must outlive it.
  PlanSearcher(const PlanRequest& request, const StepGraph& graph);

  struct Outcome {
    bool can_run = false;
    bool fits = false;
    double step_s = 0;
    Bytes memory;
    // Whether the search prefers this outcome: as long as nothing fits, it prefers what needs less memory.
    bool operator<(const Outcome& other) const;
  };
  // Whether the result should be `a` rather than `b`: where nothing fits, the fastest wins.
  static bool is_better_result(const Outcome& a, const Outcome& b);

  struct Found {
    Overlap overlap;
    Outcome outcome;
  };
  // Returns the fastest plan that fits in memory, among those found and `others` (at least one), or the fastest of all
  // where none fits. Without a budget nothing is searched, and the result is the best of `others`.
  Found best_of(const std::vector<Overlap>& others);
  // Behind best_of, where the layout leaves the schedule to the search: the named ones that came close to the fastest
  // of them, or that the budget left nothing for.
  std::vector<PipelineSchedule> promising_named() const;
  // Simulates a whole step.
  Outcome in_full(const Overlap& overlap) { return evaluate(request_, graph_, overlap); }

 private:
  static bool comes_close(const Outcome& outcome, const Outcome& best);
  static std::size_t index_of_best(const std::vector<Outcome>& outcomes);  // of at least one
  struct Problem {
    PlanRequest request;
    SharedGraph graph;
  };
  Outcome evaluate(const PlanRequest& request, const SharedGraph& graph, const Overlap& overlap);
  std::vector<Outcome> evaluate_all(const PlanRequest& request, const SharedGraph& graph,
                                    const std::vector<Overlap>& overlaps);
  // Simulates whole steps. Where one is better than the best, it becomes the best; returns whether one is.
  bool take_better(const std::vector<Overlap>& tried, Overlap& best, Outcome& of_best);

  double operations_in(const Overlap& overlap, std::int64_t micro_batches) const;
  void look_at(const std::vector<Decisions>& candidates);
  // Walks on from `from` as long as changing one dimension (except kPairs, kPipeline and kGaps) helps and the budget
  // lasts.
  Decisions descend(Decisions from);
  Decisions perturbed(const Decisions& from, std::uint64_t& random) const;
  // Returns the best found without pairs and with them, for every pipeline and every rule for gaps, and the fastest
  // where the best does not fit. Where stages have several model chunks, several of each: which is best may change with
  // more micro-batches, so a longer search of few would otherwise find what is worse in the end.
  std::vector<Decisions> finalists() const;
  Decisions descend_by_pairs();
  std::vector<Decisions> with_every_option(const Decisions& of, std::size_t dimension) const;
  Decisions with_best(std::size_t dimension, const Decisions& start);
  Found best_in_full(const std::vector<Overlap>& others);
  // Looks for orders by layers and appends the best. They pay over a whole step only, so all of them are simulated in
  // full.
  void add_layer_order(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes);
  // Looks for orders in which weight gradients run under the next forward, and appends the best (late_search.cpp).
  void add_late(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes);
  // Appends what single transfers and freer orders make of the best, where that is faster (refine_search.cpp).
  void add_refined(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes);
  std::pair<Overlap, Outcome> refine(Overlap best, double budget);
  // Appends what layer traffic in levels makes of the best, where that is faster (level_search.cpp).
  void add_levels(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes);
  // Appends what other movers of transfers make of the best, where that is faster (mover_search.cpp).
  void add_movers(std::vector<Overlap>& overlaps, std::vector<Outcome>& outcomes);
  std::vector<Overlap> worth_a_look(const std::vector<Overlap>& others, const std::vector<Overlap>& known,
                                    const Outcome& found) const;
  std::vector<Overlap> promising(std::vector<Overlap> rest);
  // Whether few micro-batches show the time and the memory of a step with all of them.
  bool extrapolates() const;
  // With every micro-batch, simulated or extrapolated; of decisions that are known.
  std::vector<Outcome> of_whole_step(const std::vector<Decisions>& decisions);
  // `small`: as the small problem has them.
  std::vector<Outcome> extrapolate(const std::vector<Overlap>& overlaps, const std::vector<Outcome>& small);
  // `own`: so many of the first are the search's.
  void simulate_close_ones(const std::vector<Overlap>& overlaps, std::size_t own, std::vector<Outcome>& outcomes);
  bool has_work_left() const { return spent_ < limit_; }
  void report();

  const PlanRequest& request_;
  const SharedGraph graph_;
  Problem small_, more_;
  DecisionSpace space_;
  std::map<Decisions, Outcome> known_;  // of the small problem
  std::map<Decisions, Outcome> whole_;  // of the whole step
  double budget_ = 0, spent_ = 0;       // operations to simulate
  double layer_order_budget_ = 0;       // of them, for orders by layers
  double late_budget_ = 0;              // beside them, for orders with late operations
  double level_budget_ = 0;             // beside them, for layer traffic in levels
  double refine_budget_ = 0;            // beside them, for single transfers
  double limit_ = 0;                    // where the descent under way stops
};

}  // namespace weft
