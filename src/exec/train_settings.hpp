// How to train: what neither model nor layout says.
#pragma once

#include <cstdint>

#include "kernels/kernels.hpp"

namespace weft {

enum class Optimizer : std::uint8_t { adam, sgd };

struct TrainSettings {
  std::int64_t steps = 10;
  std::uint64_t seed = 1;  // of weights and data order
  Optimizer optimizer = Optimizer::adam;
  AdamSettings adam;
  SgdSettings sgd;
};

inline constexpr double kNormEpsilon = 1e-5;
inline constexpr double kRotaryBase = 10'000;
// torch.nn.utils.clip_grad_norm_: coefficient = limit / (norm + this), at most 1.
inline constexpr double kClipEpsilon = 1e-6;

}  // namespace weft
