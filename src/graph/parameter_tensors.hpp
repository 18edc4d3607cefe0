// The whole tensors of the model's parameters (weight matrices, then biases) and how ranks share them. What a rank
// holds of them follows (graph/held_tensor.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/operation.hpp"
#include "graph/sharding.hpp"
#include "model/transformer.hpp"

namespace weft {

// Rows of a tensor that are shared separately: queries, keys and values; SwiGLU's gates and values.
struct Section {
  std::int64_t rows = 0;
  std::int64_t unit =
      1;             // rows that stay together, those of a head. Ranks that outnumber the units hold copies of them
  bool held = true;  // false: another parameter has these rows
  friend bool operator==(const Section&, const Section&) = default;
};

// Used in place of a dimension of Split: ranks share the tensors of a parameter, and each has whole ones (experts).
inline constexpr std::int32_t kAmongTensors = -1;

struct ParameterTensor {
  std::string name;                 // "layers.3.qkv.weight", "embedding.weight"
  std::vector<std::int64_t> shape;  // a linear's weight is {outputs, inputs}
  enum class Start : std::uint8_t { normal, ones, zeros } start = Start::normal;
  double deviation = 0;  // of Start::normal: 0.02, over sqrt(2 layers) for projections back into the stream (GPT-2)
  std::vector<Split> splits = {};
  std::vector<Section> sections = {};  // of the rows; empty: one
  std::int64_t padded_to = 1;          // a rank's rows are padded to a multiple of this
  Axis layer_axis = Axis::tp;          // its layer is split over this; if the tensor is not, ranks hold copies
  bool repeated = false;               // another pipeline stage holds the same and is responsible for it
  std::int64_t elements() const;
};

// A parameter of the graph by its name there; the layer is -1 for the ends of the model.
struct ParameterPlace {
  std::int32_t layer = -1;
  Role role = Role::embedding;
  friend auto operator<=>(const ParameterPlace&, const ParameterPlace&) = default;
};
// Whether experts hold it, spread over their own mesh.
bool is_of_experts(Role role);
// Every parameter of the model from input to output; a tied head is the embedding and not named again.
std::vector<ParameterPlace> parameter_places(const Transformer& model);

// The tensors of a parameter, in order. qkv has rows of queries, keys, values; qk_norm the norms of both, in Hugging
// Face's names; a swiglu ffn_in has rows of gates, then values; kv_down has rows of the latent, then of the rotary key,
// kv_up of every head's key and then its value; embedding and head have a row per token; experts follow each other,
// each with tensors of its own. A tied head has the embedding's tensor. Where more tensor-parallel ranks than key/value
// heads share a layer (`tp`), `qkv` has the rows of queries alone and `kv` those of keys and values.
std::vector<ParameterTensor> parameter_tensors(const Transformer& model, std::int32_t layer, Role role,
                                               std::int64_t tp = 1);

}  // namespace weft
