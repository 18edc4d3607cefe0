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
  double deviation = 0;  // of Start::normal: 0.02, over sqrt(2 layers) for projections back into the stream (GPT-2)
  std::int64_t elements() const;
};

// The tensors of a parameter, whole (before tensor parallelism and ZeRO), in order, without gaps. qkv has rows of
// queries, keys, values; a swiglu ffn_in has rows of gates, then values; embedding and head have local_vocab rows.
std::vector<ParameterTensor> parameter_tensors(const Transformer& model, const Layout& layout, std::int32_t layer,
                                               Role role);

// Element i of a tensor at the start of training: a pure function of seed, name and i, so any shard can be made on its
// own. `out` gets elements [begin, begin + out.size()) of the whole parameter value.
void initial_weights(const std::vector<ParameterTensor>& tensors, std::uint64_t seed, std::int64_t begin,
                     std::span<float> out);

}  // namespace weft
