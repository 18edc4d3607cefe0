// Builds the operations of one rank class. The pieces of a transformer are in files of their own:
// block.cpp (linear layers, norms, residuals), attention.cpp, ffn.cpp, experts.cpp, ends.cpp (embedding, head, pipeline
// boundaries), state.cpp (gradients, ZeRO, optimizer).
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/factor_sizes.hpp"
#include "graph/pipeline_run.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Numbers of transfers with members in several classes: every class that asks with the same key gets the same number.
class TransferTable {
 public:
  using Key = std::tuple<GroupKind, std::int32_t, Role, Role, Phase, std::int32_t, std::int32_t>;
  std::int32_t id(const Key& key) {
    return ids_.try_emplace(key, static_cast<std::int32_t>(ids_.size())).first->second;
  }

 private:
  std::map<Key, std::int32_t> ids_;
};

// What a layer's forward pass (or its recomputation) leaves for backward. Invalid where the layer has no such value.
// What attention reads of all tokens is kv_full; what context-parallel ranks have gathered of one slice, kv_of_slice.
struct LayerValues {
  ValueId input, normed, normed_full, query_latent, query_normed, kv_latent, rope_key, kv_normed, qkv, kv, kv_full,
      rope_full, kv_of_slice, rope_of_slice, context, attention_mask, middle, ffn_normed, ffn_normed_full, ffn_hidden,
      ffn_activated, ffn_mask, output;
  ValueId projected_qkv, projected_kv;  // qkv and kv before the norms of queries and keys, where there are any
  std::vector<Write> attention_saved;   // softmax and its dropout, or the row sums of a flash kernel
  ValueId scores, routing, expert_load, expert_input, expert_hidden, expert_activated, expert_output;
};

// A parameter tensor of the class.
struct Parameter {
  Role role;
  std::int32_t chunk = 0, layer = -1;
  std::int64_t elements = 0;               // local to the rank, before ZeRO
  GroupKind group = GroupKind::dp;         // who holds the same parameters, or shares one set of their shards
  std::optional<GroupKind> replicas = {};  // who holds the same tensor and different gradients
  bool tied = false;                       // the other copy lies on another pipeline stage
  ValueId weight = {};                     // whole, or this rank's shard under ZeRO-3
  ValueId gradient = {};                   // accumulated over the step; this rank's shard under ZeRO-2 and 3
  ValueId encoded = {};                    // this rank's shard of the weight, where shards are gathered encoded
  ValueId codes = {};                      // all shards of it, which ZeRO-1 and 2 gather once a step
  ValueId updated = {};                    // what the update writes: the weight, or a shard that is gathered into it
  // PowerSGD: what its later steps read, once the first one is there.
  ValueId whole_gradient = {}, error = {}, basis = {}, left_factor = {};
  ValueId direction = {};  // what the update follows instead of the gradient, under K-FAC
};

// One of the two factors of a linear layer's curvature: of its inputs, or of its output gradients.
struct KfacFactor {
  std::int64_t rows = 0;
  ValueId sum, reduced, average, inverse;
};

class ClassBuilder {
 public:
  ClassBuilder(StepGraph& graph, TransferTable& transfers, const Transformer& model, const Layout& layout, ClassId id);
  void build();

 private:
  struct NewValue {
    std::string name;
    std::vector<std::int64_t> shape;
    ValueKind kind = ValueKind::activation;
    Sharding sharding = {};
    double bytes_per_element = 0;
    std::optional<ElementType> dtype = {};  // the layout's precision unless given
    std::int32_t scale_block = 0;
  };
  using ParameterIndex = std::size_t;

  // Primitives.
  ValueId value(NewValue spec);
  // A value shaped and split like `source`, in the layout's precision.
  ValueId value_like(ValueId source, std::string name, ValueKind kind, double bytes_per_element = 0);
  ValueId once(NewValue spec, bool accumulated = false);
  Operation& add(Role role, Phase phase, OpKey key, std::vector<Read> reads, std::vector<Write> writes);
  // Adds a transfer of so many elements in all, in the format of what it reads (receives).
  Operation& transfer(Role role, Phase phase, Collective collective, GroupKind group, std::int64_t elements,
                      std::vector<Read> reads, std::vector<Write> writes, std::optional<Role> subject = {});
  // Whether only products that round their operands read what this gather brings, so that it travels rounded.
  bool travels_rounded(Role role, Role subject, Phase phase, Collective collective) const;
  // Bytes in which a layer keeps the input of a product for its weight gradient; 0: those of its element type.
  double kept_input_bytes() const;
  // Adds a collective over one value. `share` says how a reduce_scatter shares its rows.
  ValueId collective(Role role, Phase phase, Collective kind, GroupKind group, ValueId in, std::string name,
                     Share share = Share::blocks);
  OpKey gemm(Phase phase, std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t count = 1) const;
  OpKey elementwise(Phase phase, std::int64_t elements, std::int64_t bytes_per_element) const;
  std::string label(std::string_view what);
  std::int64_t width() const { return size_of(layout_.precision).value; }
  bool in_tp() const { return layout_.tp > 1; }
  bool has_dropout() const { return weft::has_dropout(model_, layout_); }

  // Parameters and ZeRO (state.cpp).
  // Declares the parameter of `role` in the present layer, as large as a rank's share of its tensors. `replicas`: ranks
  // that hold the same tensor and different gradients.
  ParameterIndex parameter(Role role, std::optional<GroupKind> replicas = {});
  std::int64_t held_elements(Role role);
  // `user` where it is not the parameter's own role: the head that reads a tied embedding.
  Read use(ParameterIndex index, Phase phase, std::optional<Role> user = {});
  void forget_gathered() { gathered_.clear(); }
  bool keeps_gathered_head(std::int32_t chunk) const;
  ValueId whole_gradient(ParameterIndex index, Role role);
  void weight_grad(ParameterIndex index, OpKey key, std::vector<Read> reads);
  void finish_step();
  ValueId reduce_gradient(Parameter& p, ValueId grad, Role stage);
  // Compressed gradients (compression.cpp).
  bool is_compressed(const Parameter& p);
  bool gathers_summands(const Parameter& p) const;
  ValueId compress_gradient(const Parameter& p, ValueId grad, Role stage);
  ValueId encode_gradient(const Parameter& p, ValueId grad, std::int64_t shard_count, const char* suffix);
  ValueId decode_gradient(const Parameter& p, ValueId encoded, Role role, OpKey key, const char* suffix);
  // Factors of low rank (low_rank.cpp).
  bool has_factors(const Parameter& p);
  ValueId factor_gradient(Parameter& p, ValueId grad, Role stage);
  // Compressed between nodes only (node_compression.cpp).
  bool is_compressed_between_nodes(const Parameter& p) const;
  ValueId compress_between_nodes(const Parameter& p, ValueId grad, Role stage);
  // What ZeRO++ adds (zero_plus_plus.cpp).
  void keep_secondary(ParameterIndex index, ValueId whole);
  bool has_encoded_weight(std::int64_t elements, GroupKind group) const;
  void encode_weight(const Parameter& p, ValueId shard);
  void gather_updated(const Parameter& p);
  void decode_updated(const Parameter& p);
  void gather_encoded(const Parameter& p, Phase when, Role role, ValueId whole);
  bool exchanges_gradient(const Parameter& p) const;
  void exchange_gradient(const Parameter& p, ValueId whole, Role role);
  struct Hop {
    ValueId from, to;
    std::int64_t shards, members;  // shards of `from`, and ranks that exchange them
    Scope scope;
    std::int32_t number;
  };
  void exchange_in_hop(const Parameter& p, const Hop& hop, Role role);
  // `sizes`: elements, shards that are encoded apart, summands of each element.
  OpKey code_key(OpKind kind, CompressionFormat format, ElementType dtype, std::array<std::int64_t, 3> sizes) const;
  void emit_updates();
  ValueId emit_norm(const std::vector<ValueId>& gradients);
  void emit_update(Parameter& p, ValueId gradient, ValueId norm);
  std::int64_t shards(GroupKind group) const;

  // Micro-batches of a layer group, or slices of a sequence, take turns: runs `build` for each of them. Those of a
  // reduction group pass the whole model one after the other, so that `build` runs for the one whose turn it is.
  template <typename Build>
  void in_turns(Build build) {
    for (std::size_t t = 0; t < turns_.size(); ++t) {
      if (only_turn_ < 0 || only_turn_ == static_cast<std::int32_t>(t)) build_turn(t, build);
    }
    turn_ = -1;
  }
  // Slices go back in reverse order.
  template <typename Build>
  void in_backward_turns(Build build) {
    if (!layout_.has_slices()) return in_turns(build);
    for (std::size_t t = turns_.size(); t-- > 0;) build_turn(t, build);
    turn_ = -1;
  }
  template <typename Build>
  void build_turn(std::size_t turn, Build& build) {
    turn_ = turns_.size() > 1 ? static_cast<std::int32_t>(turn) : -1;
    build(turns_[turn]);
  }
  static constexpr std::int32_t kAllTurns = -1;
  // While it lives, what is added is of that turn.
  class AsTurn {
   public:
    AsTurn(std::int32_t& turn, std::int32_t as) : turn_(turn), before_(std::exchange(turn, as)) {}
    ~AsTurn() { turn_ = before_; }
    AsTurn(const AsTurn&) = delete;
    AsTurn& operator=(const AsTurn&) = delete;

   private:
    std::int32_t& turn_;
    std::int32_t before_;
  };
  bool is_last_turn() const { return turn_ < 0 || turn_ + 1 == std::ssize(turns_); }
  struct Turn;
  Turn& now() { return turns_[std::max(turn_, 0)]; }

  // Layers.
  void forward_chunk(std::int32_t chunk);
  void backward_chunk(std::int32_t chunk);
  void declare_layer(std::int32_t layer);
  std::optional<GroupKind> replicas_of_split_tokens() const;
  LayerValues forward_layer(ValueId input, Phase phase);
  LayerValues recompute_layer(const LayerValues& saved);
  ValueId backward_layer(const LayerValues& saved, const LayerValues& again, ValueId grad);
  void forward_attention(LayerValues& v, Phase phase);
  void forward_queries(LayerValues& v, Phase phase);
  void attention_core(LayerValues& v, Phase phase);
  ValueId backward_attention(const LayerValues& saved, const LayerValues& again, ValueId grad);
  ValueId backward_queries(const LayerValues& v, ValueId grad);
  struct AttentionGrads {
    ValueId qkv, kv, rope_key;  // under context parallelism qkv holds the queries' columns only
  };
  AttentionGrads backward_core(const LayerValues& v, ValueId grad);
  void norm_queries_and_keys(LayerValues& v, Phase phase);
  AttentionGrads norm_queries_and_keys_backward(const LayerValues& v, const AttentionGrads& grads);
  OpKey qk_norm_key() const;
  ValueId backward_latent(const LayerValues& v, const AttentionGrads& grads, ValueId x);
  void gather_keys(LayerValues& v, Phase phase);
  void gather_over_ranks(LayerValues& v, Phase phase);
  void join_keys(LayerValues& v, Phase phase);
  AttentionGrads add_to_slices(const AttentionGrads& of_all);
  AttentionGrads scatter_over_ranks(const AttentionGrads& of_all);
  Sharding shared_key_sharding() const;
  // What an earlier or later turn left of the present layer in forward.
  const LayerValues& saved_by(std::int32_t turn) const {
    return turns_[turn].saved[chunk_][layer_ - chunk_layers_[chunk_].first];
  }
  OpKey core_key() const;
  std::vector<Read> core_inputs(const LayerValues& v) const;
  void forward_ffn(LayerValues& v, Phase phase);
  ValueId backward_ffn(const LayerValues& v, ValueId grad);
  ValueId forward_mlp(LayerValues& v, Phase phase, bool shared);
  ValueId backward_mlp(const LayerValues& v, ValueId grad, bool shared);
  OpKey gate_key(Phase phase) const;
  OpKey permute_key(std::int64_t tokens = 0) const;
  void forward_gate(LayerValues& v, Phase phase);
  ValueId loads_of_all_tokens(const LayerValues& v) const;
  ValueId bound_for_experts(const char* name, ValueKind kind);
  bool gathers_all_tokens() const;
  std::int64_t dispatched_tokens() const;
  ValueId gather_tokens(Role role, Phase phase, ValueId tokens, const char* name);
  ValueId sum_of_tokens(Role role, Phase phase, ValueId partial, const char* name);
  void expert_activations(LayerValues& v, Phase phase);
  void recompute_experts(LayerValues& v, const LayerValues& saved);
  ValueId forward_experts(LayerValues& v, Phase phase);
  ValueId backward_experts(const LayerValues& v, ValueId grad);
  ValueId backward_expert_products(const LayerValues& v, ValueId d_out);

  // Sharding. An axis of one rank splits nothing.
  void split(Sharding& sharding, std::int32_t dim, Axis axis, Share share = Share::blocks) const;
  Sharding stream_sharding() const;  // of the residual stream
  Sharding token_sharding() const;   // of rows that tensor-parallel ranks have all of
  Sharding head_sharding() const;    // the same, with columns of the rank's heads
  Sharding slot_sharding() const;    // of rows on their way to experts
  Sharding zero_sharding(GroupKind group, bool sharded) const;
  // How the weight of a linear layer is spread.
  struct Spread {
    std::optional<Axis> rows, columns;
  };
  Spread spread_of(Role role);
  Sharding output_sharding(Role role, ValueId x);
  // Returns the value with its rows shared over `axis` as said, or (without a share) whole on each rank, adding the
  // collective that this takes, if any.
  ValueId reshard(Role role, Phase phase, ValueId in, Axis axis, std::optional<Share> rows, std::string name);
  // Tensor parallelism: a column-split linear reads whole rows, a row-split one leaves partial sums. Without sequence
  // parallelism the stream is whole, so partial sums become it by an all_reduce; with it, rows are gathered before and
  // reduced and scattered behind (Korthikanti et al. 2022, figure 6).
  ValueId whole_over_tp(Role role, Phase phase, ValueId in, std::string name);
  ValueId to_stream(Role role, Phase phase, ValueId in, std::string name);

  // Shared shapes of a block.
  ValueId norm(Role role, Phase phase, ValueId in, const char* name);
  ValueId norm_backward(Role role, ValueId in, ValueId grad, ValueId residual_grad);
  ValueId residual(Role role, Phase phase, ValueId branch, ValueId stream, ValueId* mask, const char* name);
  ValueId residual_backward(Role role, ValueId mask, ValueId grad);
  struct LinearShape {
    std::int64_t in, out;
  };
  ValueId linear(Role role, Phase phase, ValueId x, LinearShape shape, const char* name);
  // The gradient of an output; `beside` where the output is two values side by side.
  struct OutputGrad {
    ValueId grad, beside = {};
  };
  // `onto`, where valid, is added to dX by the same product.
  ValueId linear_input_grad(Role role, OutputGrad grads, LinearShape shape, ValueId onto = {});
  void linear_weight_grad(Role role, ValueId x, OutputGrad grads, LinearShape shape);
  ValueId linear_backward(Role role, ValueId x, OutputGrad grads, LinearShape shape, ValueId onto = {});
  std::vector<Read> reads_of(OutputGrad grads) const;
  std::int64_t rows_of(OutputGrad grads, std::int64_t columns) const;
  // Tasks of a user (tasks.cpp).
  void add_tasks();
  const Parameter& parameter_named(const ExtraTask& task) const;
  // K-FAC (kfac.cpp).
  void add_curvature(Role role, ValueId x, OutputGrad grads, LinearShape shape);
  void reduce_curvature(ParameterIndex index);
  ValueId gather_gradient(const Parameter& p, ValueId shard);
  void precondition(ParameterIndex index, ValueId gradient);
  void invert_curvature(ParameterIndex index);

  // Ends (ends.cpp).
  ValueId forward_input(std::int32_t chunk);
  ValueId drop_out_embedding(ValueId in);
  void forward_output(std::int32_t chunk, ValueId output);
  ValueId backward_output(std::int32_t chunk);
  void backward_input(std::int32_t chunk, ValueId grad);
  void forward_head(ValueId input);
  ValueId backward_head();
  // Where two chunks that follow each other are on one stage, no message passes between them.
  bool is_on_this_stage(std::int64_t chunk_of_model) const {
    return layout_.pp > 1 && shape_of(layout_).stage_of(chunk_of_model) == rank_class().stage;
  }
  ValueId boundary(Role role, Phase phase, std::int64_t from_chunk, bool sends, ValueId sent);

  std::int64_t global_chunk(std::int32_t chunk) const { return shape_of(layout_).number_of(rank_class().stage, chunk); }
  const RankClass& rank_class() const { return graph_.classes[id_.index()]; }

  // Sizes on this rank.
  std::int64_t tokens() const { return layout_.has_slices() ? queries() : layout_.tokens(); }
  // Those whose keys and values context-parallel ranks have together: a slice's, or all of a micro-batch.
  std::int64_t tokens_of_ranks() const { return tokens() * layout_.cp; }
  // Of one sequence: those that attention computes for, and those that it reads the keys of.
  std::int64_t queries() const { return (layout_.has_slices() ? slice().size() : layout_.seq) / layout_.cp; }
  std::int64_t keys() const { return layout_.has_slices() ? slice().end : layout_.seq; }
  ElementRange slice() const { return layout_.slice(turn_); }
  bool has_earlier_slice() const { return layout_.has_slices() && turn_ > 0; }
  // Keys and values lie apart from queries, because other ranks or slices read them.
  bool shares_keys() const { return layout_.cp > 1 || layout_.has_slices(); }
  std::int64_t stream_tokens() const { return layout_.sequence_parallel ? tokens() / layout_.tp : tokens(); }
  std::int64_t heads() const { return model_.heads / layout_.tp; }
  std::int64_t kv_heads() const { return std::max<std::int64_t>(1, model_.kv_heads / layout_.tp); }
  // Tensor-parallel ranks hold copies of a key/value head: its weights are a parameter apart from the queries'.
  bool keys_are_copied() const { return layout_.tp > model_.kv_heads; }
  std::int64_t query_head() const;
  std::int64_t value_head() const;
  std::int64_t qkv_width() const;
  std::int64_t kv_width() const;
  std::int64_t routed_rows() const;  // token copies that leave this rank's router, capacity included
  std::int64_t expert_rows() const;  // rows that all local experts together compute on

  StepGraph& graph_;
  TransferTable& transfers_;
  const Transformer& model_;
  const Layout& layout_;
  ClassId id_;
  std::vector<bool> recomputed_;  // by layer of the model: as a whole
  std::int32_t chunk_ = 0, layer_ = -1;
  std::int32_t labelled_layer_ = -1;  // whose label_prefix_ it is
  std::string label_prefix_;
  std::vector<Parameter> parameters_;
  std::map<std::pair<std::int32_t, Role>, ParameterIndex> by_role_;  // (layer, role)
  std::map<Role, std::int64_t> held_elements_;                       // the same in every layer
  std::map<Role, FactorSizes> factor_sizes_;                         // likewise
  std::map<Role, Spread> spreads_;
  std::map<ParameterIndex, std::array<KfacFactor, 2>> kfac_;
  std::map<ParameterIndex, ValueId> gathered_;                          // ZeRO-3: whole copies in use right now
  std::map<ParameterIndex, ValueId> secondary_;                         // shares of them that backward gathers
  std::vector<std::pair<std::int32_t, std::int32_t>> chunk_layers_;     // first layer and count, by chunk
  std::map<std::pair<ParameterIndex, Role>, ValueId> whole_gradients_;  // ZeRO-2 and 3: before they are scattered
  struct HeadValues {
    ValueId input, normed, normed_full, logits, probabilities;
  };
  // What one micro-batch of a layer group, or one slice, has on its way; without either there is one of them.
  struct Turn {
    ValueId stream, grad;                         // where it stands
    std::vector<std::vector<LayerValues>> saved;  // by chunk, by layer in the chunk
    std::vector<ValueId> chunk_output, chunk_input_grad;
    ValueId embedding_mask;
    HeadValues head;
    AttentionGrads key_grads;  // of a slice in the layer that backward is in: slices behind it add to them
  };
  std::vector<Turn> turns_;
  std::int32_t turn_ = -1;       // Operation::turn of what is added now
  std::int32_t only_turn_ = -1;  // of a reduction group, the one that passes the model now
};

}  // namespace weft
