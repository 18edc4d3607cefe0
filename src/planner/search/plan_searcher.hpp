// The search of policy `weft`: from good points of the decision space, one dimension after the other, every candidate
// simulated. Large steps are searched in small: fewer micro-batches show what a layer's order is worth as well as many.
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

  // The fastest that fits in memory, of those found and of `others`, of which there is at least one; where none fits,
  // the fastest of all. Without a budget nothing is searched for: it is the best of `others`.
  Overlap best_of(const std::vector<Overlap>& others);

 private:
  struct Outcome {
    bool can_run = false;
    bool fits = false;
    double step_s = 0;
    Bytes memory;
    // The order in which the search goes on: where nothing fits yet, to what needs less.
    bool operator<(const Outcome& other) const;
  };
  // The order in which the result is chosen: where nothing fits, the fastest, as everywhere.
  static bool is_better_result(const Outcome& a, const Outcome& b);
  static std::size_t index_of_best(const std::vector<Outcome>& outcomes);  // of at least one
  struct Problem {
    PlanRequest request;
    SharedGraph graph;
  };
  Outcome evaluate(const PlanRequest& request, const SharedGraph& graph, const Overlap& overlap);
  std::vector<Outcome> evaluate_all(const PlanRequest& request, const SharedGraph& graph,
                                    const std::vector<Overlap>& overlaps);

  double operations_in(const Overlap& overlap, std::int64_t micro_batches) const;
  void look_at(const std::vector<Decisions>& candidates);
  // Goes on from `from` as long as changing one dimension but kPairs helps and there is work left.
  Decisions descend(Decisions from);
  Decisions shaken(const Decisions& from, std::uint64_t& random) const;
  // Without pairs and with them: the best found, and the fastest where that does not fit.
  std::vector<Decisions> finalists() const;
  Decisions descend_by_pairs();
  Overlap best_in_full(const std::vector<Overlap>& others);
  std::vector<Overlap> worth_a_look(const std::vector<Overlap>& others, const std::vector<Overlap>& known,
                                    const Outcome& found) const;
  // Whether few micro-batches say what a step of all of them takes and holds.
  bool extrapolates() const;
  // With every micro-batch; `small`: as the small problem has them.
  std::vector<Outcome> of_whole_step(const std::vector<Overlap>& overlaps, const std::vector<Outcome>& small);
  // `own`: so many of the first are the search's.
  void simulate_close_ones(const std::vector<Overlap>& overlaps, std::size_t own, std::vector<Outcome>& outcomes);
  bool has_work_left() const { return spent_ < limit_; }
  void report();

  const PlanRequest& request_;
  const SharedGraph graph_;
  Problem small_, more_;
  DecisionSpace space_;
  std::map<Decisions, Outcome> known_;  // of the small problem
  double budget_ = 0, spent_ = 0;       // operations to simulate
  double limit_ = 0;                    // where the descent under way stops
};

}  // namespace weft
