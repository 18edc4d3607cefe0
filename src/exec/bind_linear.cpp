#include "exec/bind_linear.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

// One matrix of the output, with the rows of the weight that make it.
struct Output {
  Matrix values, weight;
  Vector bias;
};

std::vector<Output> side_by_side(const std::vector<Matrix>& outputs, const Matrix& weight, const Vector& bias) {
  std::vector<Output> parts;
  std::int64_t row = 0;
  for (const Matrix& values : outputs) {
    Vector part;
    if (!bias.empty()) part = {static_cast<float*>(bias.data) + row, values.columns};
    parts.push_back({values, weight.row_slice(row, row + values.columns), part});
    row += values.columns;
  }
  WEFT_CHECK(row == weight.rows);
  return parts;
}

}  // namespace

KernelCalls bind_linear(const RankView& view, const Operation& op, std::int32_t micro_batch, ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  const ValueId weight = op.reads[1].value;
  std::vector<Matrix> outputs;
  for (std::size_t i = 0; i < op.writes.size(); ++i) outputs.push_back(of.write(i));
  return [x = of.read(0), parts = side_by_side(outputs, of.weight(weight), of.added_bias(weight))](Kernels& kernels,
                                                                                                   std::int64_t) {
    for (const Output& y : parts) kernels.linear(x, y.weight, y.bias, y.values);
  };
}

KernelCalls bind_linear_input_grad(const RankView& view, const Operation& op, std::int32_t micro_batch,
                                   ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  std::vector<Matrix> grads;
  for (std::size_t i = 0; i + 1 < op.reads.size(); ++i) grads.push_back(of.read(i));
  return [dx = of.write(), parts = side_by_side(grads, of.weight(op.reads.back().value), {})](Kernels& kernels,
                                                                                              std::int64_t) {
    Into into = Into::overwrite;
    for (const Output& dy : parts) {
      kernels.linear_input_grad(dy.values, dy.weight, dx, into);
      into = Into::add;
    }
  };
}

KernelCalls bind_linear_input_grad_onto(const RankView& view, const Operation& op, std::int32_t micro_batch,
                                        ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  WEFT_CHECK(op.reads.size() >= 3);
  const std::size_t last = op.reads.size() - 1;
  std::vector<Matrix> grads;
  for (std::size_t i = 0; i + 1 < last; ++i) grads.push_back(of.read(i));
  return [parts = side_by_side(grads, of.weight(op.reads[last].value), {}), onto = of.read(last - 1), dx = of.write()](
             Kernels& kernels, std::int64_t) {
    Into into = Into::overwrite;
    for (const Output& dy : parts) {
      kernels.linear_input_grad(dy.values, dy.weight, dx, into);
      into = Into::add;
    }
    kernels.add(dx, onto, dx);
  };
}

KernelCalls bind_linear_weight_grad(const RankView& view, const Operation& op, std::int32_t micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ValueId gradient = op.writes.front();
  std::vector<Matrix> grads;
  for (std::size_t i = 1; i < op.reads.size(); ++i) grads.push_back(of.read(i));
  return [x = of.read(0), parts = side_by_side(grads, of.weight(gradient), of.bias(gradient)), into](Kernels& kernels,
                                                                                                     std::int64_t) {
    for (const Output& dy : parts) kernels.linear_weight_grad(x, dy.values, dy.weight, dy.bias, into);
  };
}

}  // namespace weft
