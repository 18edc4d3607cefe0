// Attention by fused kernels of libtorch, for the shapes that they take. Where libtorch has no CUDA, there is none.
#pragma once

#include <memory>

#include "kernels/cuda/attention_kernels.hpp"
#include "kernels/kernels.hpp"

namespace weft::cuda {

// Queries and keys as scores see them: rotated already.
struct AttentionOperands {
  const AttentionShape& shape;
  Heads q, k, v;
  Heads context;
  const AttentionSaved& saved;
};
struct AttentionGradients {
  Heads d_context;
  Heads dq, dk, dv;  // of dk and dv, rows of keys that no query sees are left alone
  Into into_dk, into_dv;
};

class FastAttention {
 public:
  virtual ~FastAttention() = default;
  // False: nothing was done, because the shape is not among those that it takes.
  virtual bool forward(Kernels& kernels, cudaStream_t stream, const AttentionOperands& operands) = 0;
  virtual bool backward(Kernels& kernels, cudaStream_t stream, const AttentionOperands& operands,
                        const AttentionGradients& gradients) = 0;
};
// nullptr where libtorch has no CUDA.
std::unique_ptr<FastAttention> make_fast_attention(int device);
bool has_fast_attention();

}  // namespace weft::cuda
