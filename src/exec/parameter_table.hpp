// What lies inside the flat parameter values of the graph: weight matrices, then biases. One table serves
// initialisation, export, kernels and checkpoints.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/operation.hpp"
#include "graph/step_graph.hpp"
#include "model/transformer.hpp"

namespace weft {

// A tensor inside a parameter value: `shape` row-major from element `offset` on.
struct ParameterTensor {
  std::string name;  // "layers.3.qkv.weight", "embedding.weight"
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;  // a linear's weight is {outputs, inputs}
  enum class Start : std::uint8_t { normal, ones, zeros } start = Start::normal;
  double deviation = 0;      // of Start::normal: 0.02, over sqrt(2 layers) for projections back into the stream (GPT-2)
  std::int64_t padding = 0;  // so many elements at the end are zeros at the start: rows beyond the vocabulary
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

// The tensors of a parameter, whole (before tensor parallelism and ZeRO), in order, without gaps. qkv has rows of
// queries, keys, values; a swiglu ffn_in has rows of gates, then values; embedding and head have local_vocab rows of
// every tensor-parallel rank. A tied head has the embedding's tensor. Throws Error naming what a run cannot train yet.
std::vector<ParameterTensor> parameter_tensors(const Transformer& model, const Layout& layout, std::int32_t layer,
                                               Role role);

// Element i of a tensor at the start of training: a pure function of seed, name and i, so any shard can be made on its
// own. `out` gets elements [begin, begin + out.size()) of the whole parameter value; beyond its end zeros (ZeRO pads).
// Normal numbers are sums of twelve uniform ones, in integers: the same bits on every machine, none beyond 6
// deviations.
void initial_weights(const std::vector<ParameterTensor>& tensors, std::uint64_t seed, std::int64_t begin,
                     std::span<float> out);

}  // namespace weft
