// Graph rewrite: transfers are carried out in legs, by the rules of collective/substitution.hpp: those of data
// parallelism, and in levels those of layers (tensor, context and expert parallelism).
//
// Between two legs lies a new value, numbered after those of the model's graph: what a rank has so far of the sum or of
// the parameters. For a value with E elements in a group of N = outer x inner, whose shards have S = ceil(E / N):
//   all_reduce in halves           the rank's shard, S elements
//   all_reduce in levels           its place's slice, ceil(E / inner) elements, before and after the sum across groups
//   reduce_scatter, all_gather     the shards of its place in every inner group, outer S elements, in the order of the
//   in levels                      inner groups
//   in three levels                the same level by level: of all_reduce ceil(E / (inner middle)) elements for every
//                                  middle place, then one such slice; of reduce_scatter and all_gather the shards of
//                                  its place in every inner group, then in every middle group
//   all_to_all in levels           all blocks: of every rank in the own inner group, what it sends to the own place of
//                                  every inner group, in the order of the ranks that it is for; in three levels then of
//                                  every rank in the own part of the cluster, what it sends to the own place of every
//                                  part
// In a step's own transfers all of them lie in the memory of the whole (plan/memory/lifetimes.hpp). Those of layers
// have memory of their own, in which a part by rows has its range of every shard, or of the slice.
#pragma once

#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

// The rules that graphs are rewritten by.
inline constexpr Substitution kGraphRules[] = {
    Substitution::all_reduce_in_halves,       Substitution::all_reduce_in_levels,
    Substitution::reduce_scatter_in_levels,   Substitution::all_gather_in_levels,
    Substitution::all_reduce_in_three_levels, Substitution::reduce_scatter_in_three_levels,
    Substitution::all_gather_in_three_levels, Substitution::all_to_all_in_levels,
    Substitution::all_to_all_in_three_levels};
// Those of layer traffic, for each collective first the one of more levels.
inline constexpr Substitution kLayerRules[] = {
    Substitution::all_to_all_in_three_levels,     Substitution::all_to_all_in_levels,
    Substitution::all_reduce_in_three_levels,     Substitution::all_reduce_in_levels,
    Substitution::reduce_scatter_in_three_levels, Substitution::reduce_scatter_in_levels,
    Substitution::all_gather_in_three_levels,     Substitution::all_gather_in_levels};

// Returns whether it is what a layer sends and receives in every micro-batch, for tensor, context or expert
// parallelism, and may be carried out in levels: one value, no message between two ranks.
bool is_layer_traffic(const Operation& operation);

// Returns whether the rule may carry out an operation of a model's graph: a gradient reduction or parameter gather in a
// dp, shard or edp group, or layer traffic, with the rule's collective. Levels need a group that has them, with members
// of one class, and values that are not smaller than those between the legs.
bool may_be_substituted(const StepGraph& graph, const Operation& operation, const TransferRule& rule);
// All that may, in the levels of all borders of the group.
std::vector<TransferRule> possible_rules(const StepGraph& graph, const Operation& operation);

// The borders that levels of every group meet at: the domains of so many of the cluster's fabrics (by their place among
// Cluster::fabrics(), inner to outer), one for two levels, two for three. Empty: the groups' own levels.
using Nesting = std::vector<std::size_t>;
// All that groups of the graph may have, fewer levels first.
std::vector<Nesting> nestings(const StepGraph& graph);

// Returns, by operation, the first of `wanted` that may carry it out, or none.
std::vector<TransferRule> first_possible(const StepGraph& graph, const std::vector<Substitution>& wanted,
                                         const Nesting& nesting = {});
// The same for all operations but layer traffic.
std::vector<TransferRule> first_possible_of_parameters(const StepGraph& graph, const std::vector<Substitution>& wanted,
                                                       const Nesting& nesting = {});
// All layer traffic in levels, where groups have a border less in fewer.
std::vector<TransferRule> layer_traffic_in_levels(const StepGraph& graph, const Nesting& nesting);

// A graph with its transfers in legs, and how its operations relate to those of the graph that it was made from (the
// whole).
class SubstitutedGraph {
 public:
  // `rules` has an entry for each operation of `whole`; rules that may not be applied are ignored. The legs of an
  // operation follow each other in its place. Members of a transfer in several classes use the rule of the lowest
  // class; the first leg keeps the transfer's number, the others get new ones.
  SubstitutedGraph(const StepGraph& whole, const std::vector<TransferRule>& rules);

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
