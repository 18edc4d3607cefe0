// How a model is laid out over ranks: degrees of parallelism, batches, sharding. The same for every policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/element_range.hpp"
#include "base/element_type.hpp"
#include "base/wire_format.hpp"
#include "cluster/cluster.hpp"
#include "cluster/mesh.hpp"
#include "compress/compression_format.hpp"
#include "graph/extra_task.hpp"
#include "graph/operation.hpp"
#include "graph/pipeline_schedule.hpp"
#include "model/counts.hpp"
#include "model/transformer.hpp"

namespace weft {

std::string_view name_of(Recompute recompute);
std::string_view name_of(AttentionKernel kernel);

// How tokens travel to experts that a plan does not cut by tokens: as all slots of every expert (padded); as the filled
// slots, after ranks have told each other their numbers (uneven); or every rank gathers all tokens, selects those of
// its experts, and results are added up on their way back (gathered).
enum class ExpertExchange : std::uint8_t { padded, uneven, gathered };
std::string_view name_of(ExpertExchange exchange);

// What --dispatch-fp8 sends: a byte for every element and a scale for every 128 (DeepSeek-V3 report, section 3.3.2).
inline constexpr WireFormat kDispatchFp8{ElementType::fp8, 128, ElementType::fp32};

// Gradients of data parallelism may travel encoded: every rank sends each shard to its owner, which adds the shards up
// and, where ranks hold whole gradients, sends the sum encoded to all (as qgZ of ZeRO++ does, in one hop). What
// encoding takes away is added to the gradient of the next step. ZeRO 2 and 3, which keep no whole gradients to add it
// to, do without: in every micro-batch ranks of a node add up what they send to each other node, and send the sums
// encoded (qgZ in two hops; in one where there is one level).
struct GradientCompression {
  CompressionFormat format = CompressionFormat::none;
  std::int64_t min_elements = 1 << 16;  // smaller parameters travel as they are
  std::int64_t rank = 4;                // columns of a factor, where the format is power_sgd
  // Whether gradients are summed as they are inside a node, and encoded on their way between nodes only.
  bool between_nodes = false;
  friend bool operator==(const GradientCompression&, const GradientCompression&) = default;
  bool is_on() const { return format != CompressionFormat::none; }
  bool takes(std::int64_t elements) const { return is_on() && elements >= min_elements; }
};
std::string name_of(const GradientCompression& compress);  // as --compress takes it: "int8@node", "power-sgd:4"

struct Layout {
  std::int64_t tp = 1, cp = 1, dp = 1, pp = 1;
  std::int64_t vpp = 1;          // model chunks per pipeline rank
  std::int64_t ep = 1, etp = 1;  // the experts' own mesh; edp follows
  ExpertExchange expert_exchange = ExpertExchange::padded;
  // Whether tokens on their way to experts, and in backward the gradients on the same way, travel as kDispatchFp8. What
  // returns keeps the precision (DeepSeek-V3 report, section 3.3.3).
  bool dispatch_fp8 = false;
  // Whether a token goes to a node once and from there to the experts' devices; results are added up in the node first.
  bool ep_forwarding = false;
  std::int64_t micro_batch = 1;   // sequences
  std::int64_t global_batch = 1;  // sequences
  std::int64_t seq = 0;
  int zero = 0;  // ZeRO stage
  // Ranks that share one set of ZeRO's shards: consecutive members of a data-parallel group. Sets of such ranks are
  // replicas of each other, which sum their shards. 0: all members share one set.
  std::int64_t zero_shards = 0;
  // ZeRO 3: consecutive ranks of a set of shards that keep, between a layer's forward and its backward, all of the
  // layer's parameters among them, so that backward gathers from them alone (hpZ of ZeRO++, FSDP2's
  // reshard_after_forward of a number). 0: backward gathers from all shards.
  std::int64_t zero_secondary = 0;
  // Micro-batches that pass a layer one after the other before the first of them goes on to the next layer, so that
  // ZeRO 2 and 3 gather a layer's parameters and reduce its gradients once for all of them. Operations of the graph
  // are there once for each of them, and the graph repeats for every group.
  std::int64_t layer_group = 1;
  // Micro-batches whose gradients a rank adds up by itself before they are reduced over data-parallel ranks; 0: as the
  // ZeRO stage has it, all of a step at 0 and 1, one micro-batch (or layer group) at 2 and 3. More than one and less
  // than all of them pass the model one after the other as turns of a group, and the graph repeats for every group.
  std::int64_t reduce_every = 0;
  static constexpr std::int64_t kWholeStep = -1;  // as a value of reduce_every
  // Tokens of each slice of a sequence. Slices pass the pipeline one after the other, and the attention of each reads
  // the keys and values of those before it. Empty: sequences pass whole.
  std::vector<std::int64_t> slice_tokens = {};
  bool sequence_parallel = false;
  bool dropout = true;  // of models with learned positions; those with rotary ones have none
  Recompute recompute = Recompute::none;
  // Layers of each model chunk that backward computes again, from its first on, where recompute is full or local: the
  // last to need their activations. One number is for every chunk, at most its layers. Empty: all layers.
  std::vector<std::int64_t> recompute_layers = {};
  AttentionKernel attention = AttentionKernel::flash;
  ElementType precision = ElementType::bf16;
  ElementType grad_dtype = ElementType::fp32;  // what gradients are accumulated and reduced in
  GradientCompression compress = {};
  // What ZeRO 3 gathers parameters of at least compress.min_elements in (qwZ of ZeRO++); none: as they are.
  CompressionFormat compress_weights = CompressionFormat::none;
  ProductFormat products = ProductFormat::stored;  // what the operands of layers' products are rounded to
  bool fp8_param_gather = false;                   // ZeRO 1 gathers the weights of such products in fp8
  double clip_grad = 0;                            // global-norm limit; 0: no clipping
  // K-FAC preconditions the gradients of linear layers (graph/kfac.hpp). Each of its factors is computed and inverted
  // once in so many steps. 0: no K-FAC.
  std::int64_t kfac_interval = 0;
  // What a user adds to a step, and what of the step may wait for idle time (graph/extra_task.hpp).
  std::vector<ExtraTask> tasks = {};
  std::vector<WorkThatWaits> may_wait = {};
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  // Forwards of the first stage of 1F1B before its first backward; those of the stages behind it fall evenly to one on
  // the last. More than there are stages hide messages, fewer hold fewer activations. 0: as many as stages.
  std::int64_t warm_up_depth = 0;
  std::vector<std::int64_t> stage_layers = {};  // layers of each model chunk in their order; empty: as even as possible
  std::vector<Axis> mesh_order{Axis::tp, Axis::cp, Axis::dp, Axis::pp};  // innermost first
  friend bool operator==(const Layout&, const Layout&) = default;

  std::int64_t extent(Axis axis) const;  // ranks along it
  std::int64_t devices() const { return tp * cp * dp * pp; }
  std::int64_t chunks() const { return pp * vpp; }
  // Ways that micro-batches take through the pipeline, each through chunks of its own with a copy of the parameters.
  std::int64_t directions() const { return row_of(schedule).two_directions ? 2 : 1; }
  std::int64_t model_chunks() const { return chunks() / directions(); }  // in which a micro-batch passes all layers
  // Returns whether one stage has the first chunk of the model and the last, so the embedding and the head.
  bool ends_meet() const { return pp == 1 || (row_of(schedule).in_waves && vpp % 2 == 0); }
  std::int64_t edp() const { return tp * cp * dp / (ep * etp); }
  // Returns whether expert-tensor-parallel ranks have different tokens, which they gather before the experts.
  bool experts_gather_tokens() const { return etp > 1 && (sequence_parallel || tp == 1); }
  // Returns whether there are all-to-alls before and after the experts.
  bool experts_exchange_slots() const { return ep > 1 && expert_exchange != ExpertExchange::gathered; }
  std::int64_t micro_batches() const { return global_batch / (micro_batch * dp); }
  bool has_whole_rounds() const { return micro_batches() % pp == 0; }  // of as many micro-batches as stages
  // Returns how often the graph repeats in a step: once for every micro-batch, or for every group of them. With two
  // directions it holds a micro-batch of each.
  std::int64_t layer_groups() const { return micro_batches() / (group_size() * directions()); }
  std::int64_t reduction_group() const { return std::max<std::int64_t>(reduce_every, 1); }
  std::int64_t group_size() const { return layer_group * reduction_group(); }  // one of the two is 1
  // Returns whether ranks add up all gradients of a step before they reduce them; else they add up what was reduced,
  // each in its shard.
  bool reduces_once_a_step() const { return reduce_every == 0 ? zero < 2 : reduce_every == kWholeStep; }
  std::int64_t tokens() const { return micro_batch * seq / cp; }  // of one micro-batch on one rank
  bool has_slices() const { return !slice_tokens.empty(); }
  std::int64_t slices() const { return has_slices() ? static_cast<std::int64_t>(slice_tokens.size()) : 1; }
  ElementRange slice(std::int64_t index) const;  // positions of a sequence
  // Parameter shards of ZeRO: data and context parallel ranks hold the same dense parameters.
  std::int64_t shards() const { return zero_shards > 0 ? zero_shards : dp * cp; }
  std::int64_t shard_replicas() const { return dp * cp / shards(); }
  bool encodes_weights() const { return compress_weights != CompressionFormat::none; }
  // Returns whether data-parallel groups consist of several sets of ranks, each with all shards.
  bool has_shard_groups() const { return shard_replicas() > 1; }
};

// Returns whether a model with this layout trains with dropout.
inline bool has_dropout(const Transformer& model, const Layout& layout) {
  return model.positions == Positions::learned && layout.dropout;
}

// As --reduce-every takes it; empty where the ZeRO stage decides.
std::string reduce_every_in_words(const Layout& layout);

// Throws Error naming the flag, the value and what is allowed.
void validate(const Layout& layout, const Transformer& model, std::int64_t devices);

// Layers of each of pp*vpp chunks, in model order; with two directions those of one come behind those of the other.
// Where layers do not divide, the first and last chunks get fewer: they also hold the embedding and the head.
std::vector<std::int64_t> layers_per_chunk(const Layout& layout, const Transformer& model);

// Whether backward computes a layer as a whole again, by layer of the model.
std::vector<bool> recomputed_layers(const Layout& layout, const Transformer& model);
// "full", "full of the first 2 layers of each chunk", "full of the first 3,1 layers"
std::string recompute_in_words(const Layout& layout);

Mesh dense_mesh(const Layout& layout);
// The experts' mesh: pp at the same place as in the dense mesh, then etp innermost, ep, edp. Throws Error where that is
// impossible.
Mesh expert_mesh(const Layout& layout);

// Vocabulary rows of one tensor-parallel rank are padded to a multiple of this, as Megatron does.
inline constexpr std::int64_t kVocabularyPadding = 128;
std::int64_t local_vocab(const Transformer& model, const Layout& layout);

}  // namespace weft
