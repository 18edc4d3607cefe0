// Where libtorch has no CUDA.
#include "kernels/cuda/fast_attention.hpp"

namespace weft::cuda {

std::unique_ptr<FastAttention> make_fast_attention(int /*device*/) {
  return nullptr;
}

bool has_fast_attention() {
  return false;
}

}  // namespace weft::cuda
