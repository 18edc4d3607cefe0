// The one source that includes ATen. Tensors are views of the caller's memory; what the fused kernels return lies in
// libtorch's caching allocator, in the same stream, and is copied to where the caller wants it. What the allocator
// keeps for a stream serves no other one, so it is given back when a plan's kernels go.
//
// cuDNN's kernels are the fastest on Hopper, but know no queries that begin behind the first key. FlashAttention aligns
// the last query with the last key: of the keys, it is given those that the last query sees.
#include "kernels/cuda/fast_attention.hpp"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <cmath>
#include <string>

namespace weft::cuda {
namespace {

constexpr std::int64_t kLargestCudnnHead = 128, kLargestFlashHead = 256;  // columns
constexpr std::int64_t kShortestCudnnSequence = 256;                      // below, both take next to no time

class AtenAttention final : public FastAttention {
 public:
  explicit AtenAttention(int device) : device_(static_cast<c10::DeviceIndex>(device)) {}
  ~AtenAttention() override {
    try {
      if (has_allocated_) c10::cuda::CUDACachingAllocator::emptyCache();
    } catch (const std::exception&) {  // the device has failed, which whoever waits for it hears
    }
  }
  AtenAttention(const AtenAttention&) = delete;
  AtenAttention& operator=(const AtenAttention&) = delete;

  bool forward(Kernels& kernels, cudaStream_t stream, const AttentionOperands& operands) override {
    if (!is_taken(operands)) return false;
    return translated(stream, [&] {
      const Views views = views_of(operands);
      at::Tensor out, log_sums;
      if (by_cudnn(operands)) {
        const auto result = at::_scaled_dot_product_cudnn_attention(views.q.transpose(1, 2), views.k.transpose(1, 2),
                                                                    views.v.transpose(1, 2), std::nullopt, true, 0.0,
                                                                    true, false, scale_of(operands));
        out = std::get<0>(result).transpose(1, 2);
        log_sums = std::get<1>(result);
        log_sum_dimensions_ = log_sums.dim();
      } else {
        const auto result =
            at::_flash_attention_forward(views.q, views.k, views.v, std::nullopt, std::nullopt, views.q.size(1),
                                         views.k.size(1), 0.0, true, false, scale_of(operands));
        out = std::get<0>(result);
        log_sums = std::get<1>(result);
      }
      store(kernels, out, operands.context, views.out, Into::overwrite);
      log_sums_of(operands, 3).copy_(log_sums.reshape({views.q.size(0), views.q.size(2), views.q.size(1)}));
    });
  }

  bool backward(Kernels& kernels, cudaStream_t stream, const AttentionOperands& operands,
                const AttentionGradients& gradients) override {
    if (!is_taken(operands) || operands.context.matrix.empty()) return false;
    return translated(stream, [&] {
      const Views views = views_of(operands);
      const AttentionShape& shape = operands.shape;
      const at::Tensor d_out = view(gradients.d_context, shape.sequences, shape.queries, shape.queries);
      const at::Tensor none, unused = at::empty({2}, views.q.options().dtype(at::kLong));
      at::Tensor dq, dk, dv;
      if (by_cudnn(operands)) {
        std::tie(dq, dk, dv) = at::_scaled_dot_product_cudnn_attention_backward(
            d_out.transpose(1, 2), views.q.transpose(1, 2), views.k.transpose(1, 2), views.v.transpose(1, 2),
            views.out.transpose(1, 2), log_sums_of(operands, log_sum_dimensions_), unused, unused, none, none, none,
            views.q.size(1), views.k.size(1), 0.0, true, scale_of(operands));
        dq = dq.transpose(1, 2);
        dk = dk.transpose(1, 2);
        dv = dv.transpose(1, 2);
      } else {
        std::tie(dq, dk, dv) = at::_flash_attention_backward(
            d_out, views.q, views.k, views.v, views.out, log_sums_of(operands, 3), none, none, views.q.size(1),
            views.k.size(1), 0.0, true, unused, unused, scale_of(operands));
      }
      const std::int64_t seen = views.k.size(1);
      store(kernels, dq, gradients.dq, view(gradients.dq, shape.sequences, shape.queries, shape.queries),
            Into::overwrite);
      store(kernels, dk, gradients.dk, view(gradients.dk, shape.sequences, shape.keys, seen), gradients.into_dk);
      store(kernels, dv, gradients.dv, view(gradients.dv, shape.sequences, shape.keys, seen), gradients.into_dv);
    });
  }

 private:
  // [sequence][position][head][column]
  struct Views {
    at::Tensor q, k, v, out;
  };

  static std::int64_t seen_keys(const AttentionShape& shape) { return shape.first_position + shape.queries; }
  static bool is_taken(const AttentionOperands& operands) {
    const AttentionShape& shape = operands.shape;
    const auto fits = [](const Heads& heads) {
      return heads.matrix.data.type == ElementType::bf16 && heads.step % 8 == 0 &&
             (reinterpret_cast<std::uintptr_t>(heads.matrix.data.address) |
              static_cast<std::uintptr_t>(heads.matrix.row_stride.value)) %
                     16 ==
                 0;
    };
    return fits(operands.q) && fits(operands.k) && fits(operands.v) && fits(operands.context) &&
           shape.dropout.rate == 0 && operands.saved.softmax.empty() && !operands.saved.log_sums.empty() &&
           shape.value_columns() == shape.head_size && shape.head_size % 8 == 0 &&
           shape.head_size <= kLargestFlashHead && seen_keys(shape) <= shape.keys;
  }
  static bool by_cudnn(const AttentionOperands& operands) {
    const AttentionShape& shape = operands.shape;
    return shape.first_position == 0 && shape.queries == shape.keys && shape.queries >= kShortestCudnnSequence &&
           shape.head_size <= kLargestCudnnHead;
  }
  static double scale_of(const AttentionOperands& operands) {
    return 1 / std::sqrt(static_cast<double>(operands.shape.head_size));
  }

  // The first `used` of every sequence's `length` rows.
  at::Tensor view(const Heads& heads, std::int64_t sequences, std::int64_t length, std::int64_t used) const {
    const std::int64_t row = heads.matrix.row_stride.value / size_of(heads.matrix.data.type).value;
    return at::from_blob(heads.matrix.data.address, {sequences, used, heads.count, heads.columns},
                         {length * row, row, heads.step, 1},
                         at::TensorOptions().dtype(at::kBFloat16).device(at::kCUDA, device_));
  }
  Views views_of(const AttentionOperands& operands) const {
    const AttentionShape& shape = operands.shape;
    const std::int64_t seen = seen_keys(shape);
    return {view(operands.q, shape.sequences, shape.queries, shape.queries),
            view(operands.k, shape.sequences, shape.keys, seen), view(operands.v, shape.sequences, shape.keys, seen),
            view(operands.context, shape.sequences, shape.queries, shape.queries)};
  }
  // As the kernels want it: by sequence, head and query, with a last dimension of one or without.
  at::Tensor log_sums_of(const AttentionOperands& operands, std::int64_t dimensions) const {
    const AttentionShape& shape = operands.shape;
    const at::Tensor all =
        at::from_blob(operands.saved.log_sums.data.address, {shape.sequences, shape.heads, shape.queries},
                      at::TensorOptions().dtype(at::kFloat).device(at::kCUDA, device_));
    return dimensions == 4 ? all.unsqueeze(-1) : all;
  }

  // Our own copy is the faster where rows of heads follow each other on both sides.
  static void store(Kernels& kernels, const at::Tensor& result, const Heads& heads, const at::Tensor& target,
                    Into into) {
    if (result.is_contiguous() && heads.follow_each_other() && target.size(0) * target.size(1) == heads.matrix.rows) {
      const Matrix from = Matrix::dense({static_cast<std::byte*>(result.data_ptr()), ElementType::bf16},
                                        heads.matrix.rows, heads.count * heads.columns);
      const Matrix to = heads.matrix.column_slice(0, heads.count * heads.columns);
      if (into == Into::overwrite) {
        kernels.copy(from, to);
      } else {
        kernels.add(to, from, to);
      }
    } else if (into == Into::overwrite) {
      target.copy_(result);
    } else {
      target.add_(result);
    }
  }

  // Runs in our stream; what libtorch throws is said in its own first line.
  template <class Body>
  bool translated(cudaStream_t stream, const Body& body) {
    has_allocated_ = true;
    try {
      const c10::InferenceMode without_autograd;
      const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(stream, device_));
      body();
    } catch (const RunFailed&) {
      throw;
    } catch (const std::exception& error) {
      const std::string words = error.what();
      throw RunFailed(fmt::format("attention on the GPU failed: {}", words.substr(0, words.find('\n'))));
    }
    return true;
  }

  c10::DeviceIndex device_;
  bool has_allocated_ = false;
  std::int64_t log_sum_dimensions_ = 4;  // of cuDNN's, which PyTorch 2.11 may change; as forward found it
};

}  // namespace

std::unique_ptr<FastAttention> make_fast_attention(int device) {
  return std::make_unique<AtenAttention>(device);
}

bool has_fast_attention() {
  return true;
}

}  // namespace weft::cuda
