// Graph rewrite: transfers of data parallelism are carried out in legs, by the rules of collective/substitution.hpp.
//
// Between two legs lies a new value, numbered after those of the model's graph: what a rank has so far of the sum or of
// the parameters. For a value with E elements in a group of N = outer x inner, whose shards have S = ceil(E / N):
//   all_reduce in halves           the rank's shard, S elements
//   all_reduce in levels           its place's slice, ceil(E / inner) elements, before and after the sum across groups
//   reduce_scatter, all_gather     the shards of its place in every inner group, outer S elements, in the order of the
//   in levels                      inner groups
//   in three levels                the same level by level: of all_reduce ceil(E / (inner middle)) elements for every
//                                  middle place, then one such slice; of the others the shards of its place in every
//                                  inner group, then in every middle group
// In a step's own transfers all of them lie in the memory of the whole (plan/memory/lifetimes.hpp).
#pragma once

#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

// The rules that graphs are rewritten by.
inline constexpr Substitution kGraphRules[] = {
    Substitution::all_reduce_in_halves,       Substitution::all_reduce_in_levels,
    Substitution::reduce_scatter_in_levels,   Substitution::all_gather_in_levels,
    Substitution::all_reduce_in_three_levels, Substitution::reduce_scatter_in_three_levels,
    Substitution::all_gather_in_three_levels};

// Returns whether the rule may carry out an operation of a model's graph: a gradient reduction or parameter gather in a
// dp, shard or edp group, with the rule's collective. Levels need a group that has them, with members of one class, and
// values that are not smaller than those between the legs.
bool may_be_substituted(const StepGraph& graph, const Operation& operation, Substitution rule);

// Returns, by operation, the first of `wanted` that may carry it out, or none.
std::vector<Substitution> first_possible(const StepGraph& graph, const std::vector<Substitution>& wanted);

// A graph with its transfers in legs, and how its operations relate to those of the graph that it was made from (the
// whole).
class SubstitutedGraph {
 public:
  // `rules` has an entry for each operation of `whole`; rules that may not be applied are ignored. The legs of an
  // operation follow each other in its place. Members of a transfer in several classes use the rule of the lowest
  // class; the first leg keeps the transfer's number, the others get new ones.
  SubstitutedGraph(const StepGraph& whole, const std::vector<Substitution>& rules);

  const StepGraph& graph() const { return graph_; }
  // All legs of an operation of the whole, in their order.
  std::vector<OpId> legs_of(OpId whole) const;
  // Converts facts indexed by operation of the whole to operations of graph().
  std::vector<std::int32_t> by_leg(const std::vector<std::int32_t>& of_whole) const;
  // A leg of an operation of the whole.
  OpId leg_of(OpId whole, std::int32_t leg) const { return {first_leg_[whole.index()].value + leg}; }
  // The origins of a graph made from graph() become operations of the whole.
  void name_origins(StepGraph& made) const;

 private:
  StepGraph graph_;
  std::vector<OpId> first_leg_;  // by operation of the whole
  std::vector<OpId> origin_;     // by operation of graph()
};

}  // namespace weft
