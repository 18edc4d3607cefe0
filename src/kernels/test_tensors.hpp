// Tensors for the tests of kernels, and the oracle: libtorch's autograd in double precision.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernels/kernels.hpp"

namespace weft {

// The kernels of the calling thread, with one thread inside.
inline Kernels& kernels() {
  thread_local const std::unique_ptr<Kernels> own = make_kernels();
  return *own;
}

inline double loss_of(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities) {
  double loss = 0;
  kernels().cross_entropy(logits, targets, vocab, probabilities, loss);
  kernels().synchronize();
  return loss;
}
inline double loss_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                            const Matrix& probabilities) {
  double loss = 0;
  kernels().cross_entropy_of_parts(logits, part, parts, probabilities, loss);
  kernels().synchronize();
  return loss;
}

// The kernels see it as a slice of a larger matrix (its rows lie further apart than they are long), whose other values
// they must leave alone.
class SlicedTensor {
 public:
  explicit SlicedTensor(const at::Tensor& values)
      : whole_(at::full({values.size(0) + 2, values.size(1) + 5}, kGuardValue)),
        slice_(whole_.narrow(0, 1, values.size(0)).narrow(1, 3, values.size(1))) {
    slice_.copy_(values);
  }
  SlicedTensor(std::int64_t rows, std::int64_t columns) : SlicedTensor(at::full({rows, columns}, kUnset)) {}

  Matrix matrix() const {
    return {slice_.data_ptr<float>(), slice_.size(0), slice_.size(1), slice_.stride(0) * size_of(ElementType::fp32)};
  }
  at::Tensor values() const { return slice_.clone(); }
  bool surroundings_intact() const {
    at::Tensor others = whole_.clone();
    others.narrow(0, 1, slice_.size(0)).narrow(1, 3, slice_.size(1)).fill_(kGuardValue);
    return others.eq(kGuardValue).all().item<bool>();
  }

 private:
  static constexpr float kGuardValue = 777, kUnset = -55;
  at::Tensor whole_, slice_;
};

inline Vector vector_of(const at::Tensor& values) {
  return {values.data_ptr<float>(), values.numel()};
}

inline at::Tensor random_tensor(at::IntArrayRef sizes, std::uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn(sizes, generator);
}

// ‖a - b‖ / ‖b‖
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor exact = b.to(at::kDouble);
  const double size = exact.norm().item<double>();
  return (a.to(at::kDouble) - exact).norm().item<double>() / (size > 0 ? size : 1);
}

// An oracle's output and the gradients of its inputs, given the gradient of the output.
struct Oracle {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};
using OracleFunction = std::function<at::Tensor(const std::vector<at::Tensor>&)>;
inline Oracle ask_oracle(const OracleFunction& function, const std::vector<at::Tensor>& inputs,
                         const at::Tensor& output_gradient) {
  std::vector<at::Tensor> exact;
  for (const at::Tensor& input : inputs) exact.push_back(input.to(at::kDouble).set_requires_grad(true));
  const at::Tensor output = function(exact);
  output.backward(output_gradient.to(at::kDouble));
  Oracle oracle{output.detach(), {}};
  for (const at::Tensor& input : exact) oracle.gradients.push_back(input.grad());
  return oracle;
}

}  // namespace weft
