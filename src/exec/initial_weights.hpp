// The numbers that training starts from, and what of a model cannot be trained.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "graph/held_tensor.hpp"

namespace weft {

// Throws Error naming what of the model a run cannot train yet.
void require_trainable_tensors(const Transformer& model);

// Elements from `first` on of a tensor at the start of training: a pure function of seed, name and index, so any part
// can be made on its own. Normal numbers are sums of twelve uniform ones, in integers: the same bits on every machine,
// none beyond 6 deviations.
// Beyond so many `distinct` ones the normal numbers of `out` repeat, for those who only want steps that take as long.
inline constexpr std::size_t kAllDistinct = std::numeric_limits<std::size_t>::max(), kFewDistinct = 1 << 16;
void initial_elements(const ParameterTensor& tensor, std::uint64_t seed, std::int64_t first, std::span<float> out,
                      std::size_t distinct = kAllDistinct);

// Elements [begin, begin + out.size()) of a rank's parameter value at the start of training: those of the whole
// tensors, whatever the layout. Padding, of tokens and of ZeRO's shards behind the end, is zero.
void initial_weights(const std::vector<HeldTensor>& tensors, std::uint64_t seed, std::int64_t begin,
                     std::span<float> out, std::size_t distinct = kAllDistinct);

}  // namespace weft
