// The parameters of a rank's class: which values of the graph hold their weights, gradients and optimizer state, and
// where this rank's own part of them lies.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "exec/curvature_factors.hpp"
#include "exec/initial_weights.hpp"
#include "exec/rank_view.hpp"
#include "graph/held_tensor.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// Whose parameter an operation of this role works on: a head that is tied to the embedding of its own stage has none.
Role parameter_role(const Transformer& model, const Layout& layout, Role role);

// Returns whether it encodes the sums of a shard; other encodings are of a rank's own gradient.
bool encodes_sum(const Operation& operation);

struct ParameterState {
  std::int32_t layer = -1;
  Role role = Role::embedding;
  std::int64_t elements = 0;        // of this tensor-parallel rank, without the padding of ZeRO's shards
  GroupKind group = GroupKind::dp;  // whose members have ZeRO's shards of it
  bool is_copy = false;             // of the pipeline's second direction: the rank with the first one answers for it
  std::vector<HeldTensor> tensors;
  ValueId weight;    // whole; under ZeRO-3 this rank's shard
  ValueId gradient;  // what backward sums up: whole; under ZeRO-2 and 3 a shard
  ValueId reduced;   // what the update reads; in the memory of `gradient`
  ValueId encoded;   // this rank's shard of the weight, where it is gathered encoded; else not valid
  // This rank's shard as the update left it, where ZeRO-1 and 2 gather it encoded, which rounds `weight`; else not
  // valid. Between steps it holds something only where weights are 32 bits wide; else the master copy is kept.
  ValueId unrounded;
  ValueId state;  // first moments, then second, then the master copy where weights are 16 bits wide
  // What encodings have taken away of this rank's gradient, and of the sums of its shard; not valid: there are none.
  ValueId gradient_error, sum_error;
  ValueId basis;             // of PowerSGD: the right factors that a step begins with; else not valid
  std::string name() const;  // "layer 3 qkv"
};

// Compression errors in a rank's memory, and of which elements of the parameter they are.
struct HeldErrors {
  ElementRange elements;
  Vector errors;
  bool of_sum = false;
};

// The basis of one matrix of a parameter in a rank's memory.
struct HeldBasis {
  const HeldTensor* tensor;
  Vector factor;
};

class ParameterStates {
 public:
  explicit ParameterStates(const RankView& view);

  const std::vector<ParameterState>& all() const { return parameters_; }
  // Returns the factors of K-FAC's curvature, where it trains these parameters.
  const std::vector<CurvatureFactor>& factors() const { return factors_; }
  // Returns which of them an operation of K-FAC is about: that of its layer and part.
  std::size_t factor_of(const Operation& operation) const;
  // Returns that of an operation of this layer that serves `role` (a tied head's is the embedding). Throws where none
  // is.
  const ParameterState& of(std::int32_t layer, Role role) const;

  // Returns the elements that this rank updates: all, or its shard under ZeRO.
  ElementRange own(const ParameterState& p) const;
  // Returns those of them that this rank saves: ranks that hold the same elements share them out.
  ElementRange saved(const ParameterState& p) const;
  // Returns the rows of a factor that this rank saves, of those that it has.
  ElementRange saved_rows(const CurvatureFactor& factor) const {
    return view_.own_shard(factor.average.rows, parameters_[factor.parameter].group);
  }
  Vector own_weights(const ParameterState& p) const;
  // Returns the weights that lie in its memory between steps: all, or under ZeRO-3 its shard.
  Vector held_weights(const ParameterState& p) const;
  Vector own_gradient(const ParameterState& p) const;  // reduced
  Vector own_moment(const ParameterState& p, int which) const;
  // Returns the weights in fp32 that the update works on: a copy of their own where the weights are 16 bits wide.
  Vector own_master(const ParameterState& p) const;
  // Returns the shards of its node's sums that this rank encodes for the other nodes, one for each node.
  std::vector<ElementRange> node_shards(const ParameterState& p) const;
  // Returns a number that is the same on all ranks that hold this parameter, for PowerSGD's random numbers.
  std::uint64_t seed_of_basis(const ParameterState& p, std::uint64_t seed) const;
  // Returns the bases of PowerSGD, one for every matrix that it has factors of. They are the same on all ranks that
  // hold the parameter, of which the first saves them.
  std::vector<HeldBasis> bases_of(const ParameterState& p) const;
  bool saves_bases(const ParameterState& p) const { return view_.position_in(p.group) == 0; }
  // Sets the bases of PowerSGD to those that training begins with.
  void set_initial_bases(std::uint64_t seed) const;
  // Returns all compression errors of a parameter. Only their sum over ranks counts.
  std::vector<HeldErrors> errors_of(const ParameterState& p) const;
  // Sets weights and their master copy to what `elements_of` says of a range of the parameter's elements.
  void set_weights(const ParameterState& p,
                   const std::function<std::span<const float>(ElementRange)>& elements_of) const;
  // Encodes this rank's shard as the others gather it; to be called whenever it has changed.
  void encode_weights(const ParameterState& p) const;
  // Puts whole weights through the format, shard by shard, as gathering them does.
  void round_weights(const ParameterState& p) const;
  // Sets them to those that training begins with.
  void set_initial_weights(std::uint64_t seed, std::size_t distinct = kAllDistinct) const;  // initial_weights.hpp
  // Returns whether it is the first of the ranks of `among` that hold the same elements as this one.
  bool answers_for(const ParameterState& p, GroupKind among) const;
  // Returns where member `position`'s shard of the whole lies in `value`, which is the whole or (only its own) the
  // shard.
  Vector shard_in(const ParameterState& p, ValueId value, MicroBatch micro_batch, std::int64_t position) const {
    return shard_in(p, value, micro_batch, position, p.group);
  }
  // The same of shares over another group: those that a secondary group keeps for backward.
  Vector shard_in(const ParameterState& p, ValueId value, MicroBatch micro_batch, std::int64_t position,
                  GroupKind group) const;
  bool holds_whole(const ParameterState& p, ValueId value) const;

 private:
  bool sharded(const ParameterState& p) const;
  // The group of those that update the same elements as this rank; nothing where no other rank does.
  std::optional<GroupKind> same_elements(const ParameterState& p) const;

  const RankView& view_;
  std::vector<ValueId> storage_;  // by value: whose memory it shares
  std::vector<ParameterState> parameters_;
  std::map<std::pair<std::int32_t, Role>, std::size_t> by_role_;
  std::vector<CurvatureFactor> factors_;
};

}  // namespace weft
