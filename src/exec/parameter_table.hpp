// The model's tensors, whole, whatever the layout: weight matrices, then biases. What a rank holds of them is in
// held_tensor.hpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/operation.hpp"
#include "graph/step_graph.hpp"
#include "model/transformer.hpp"

namespace weft {

struct ParameterTensor {
  std::string name;                 // "layers.3.qkv.weight", "embedding.weight"
  std::vector<std::int64_t> shape;  // a linear's weight is {outputs, inputs}
  enum class Start : std::uint8_t { normal, ones, zeros } start = Start::normal;
  double deviation = 0;  // of Start::normal: 0.02, over sqrt(2 layers) for projections back into the stream (GPT-2)
  std::int64_t elements() const;
};

// A parameter value of the graph by what the graph calls it: layer -1 for the ends of the model.
struct ParameterPlace {
  std::int32_t layer = -1;
  Role role = Role::embedding;
  friend auto operator<=>(const ParameterPlace&, const ParameterPlace&) = default;
};
// Every parameter of the model from input to output; a tied head is the embedding and not named again.
std::vector<ParameterPlace> parameter_places(const Transformer& model);

// The tensors of a parameter, in order. qkv has rows of queries, keys, values; qk_norm the norms of both, in Hugging
// Face's names; a swiglu ffn_in has rows of gates, then
// values; kv_down has rows of the latent, then of the rotary key, kv_up of every head's key and then its value;
// embedding and head have a row per token; experts follow each other, each with tensors of its own. A tied head
// has the embedding's tensor. Throws Error naming what a run cannot train yet.
std::vector<ParameterTensor> parameter_tensors(const Transformer& model, std::int32_t layer, Role role);

// Elements from `first` on of a tensor at the start of training: a pure function of seed, name and index, so any part
// can be made on its own. Normal numbers are sums of twelve uniform ones, in integers: the same bits on every machine,
// none beyond 6 deviations.
void initial_elements(const ParameterTensor& tensor, std::uint64_t seed, std::int64_t first, std::span<float> out);

}  // namespace weft
