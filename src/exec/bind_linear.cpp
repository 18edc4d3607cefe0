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
    if (!bias.empty()) part = bias.slice(row, row + values.columns);
    parts.push_back({values, weight.row_slice(row, row + values.columns), part});
    row += values.columns;
  }
  WEFT_CHECK(row == weight.rows);
  return parts;
}

}  // namespace

std::function<void(std::int64_t)> bind_linear(const RankView& view, const Operation& op, std::int32_t micro_batch,
                                              ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  const ValueId weight = op.reads[1].value;
  std::vector<Matrix> outputs;
  for (std::size_t i = 0; i < op.writes.size(); ++i) outputs.push_back(of.write(i));
  return [x = of.read(0), parts = side_by_side(outputs, of.weight(weight), of.added_bias(weight))](std::int64_t) {
    for (const Output& y : parts) linear(x, y.weight, y.bias, y.values);
  };
}

std::function<void(std::int64_t)> bind_linear_input_grad(const RankView& view, const Operation& op,
                                                         std::int32_t micro_batch, ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  std::vector<Matrix> grads;
  for (std::size_t i = 0; i + 1 < op.reads.size(); ++i) grads.push_back(of.read(i));
  return [dx = of.write(), parts = side_by_side(grads, of.weight(op.reads.back().value), {})](std::int64_t) {
    Into into = Into::overwrite;
    for (const Output& dy : parts) {
      linear_input_grad(dy.values, dy.weight, dx, into);
      into = Into::add;
    }
  };
}

std::function<void(std::int64_t)> bind_linear_input_grad_onto(const RankView& view, const Operation& op,
                                                              std::int32_t micro_batch, ElementRange rows) {
  const Operands of(view, op, micro_batch, rows);
  WEFT_CHECK(op.reads.size() >= 3);
  const std::size_t last = op.reads.size() - 1;
  std::vector<Matrix> grads;
  for (std::size_t i = 0; i + 1 < last; ++i) grads.push_back(of.read(i));
  return [parts = side_by_side(grads, of.weight(op.reads[last].value), {}), onto = of.read(last - 1),
          dx = of.write()](std::int64_t) {
    Into into = Into::overwrite;
    for (const Output& dy : parts) {
      linear_input_grad(dy.values, dy.weight, dx, into);
      into = Into::add;
    }
    add(dx, onto, dx);
  };
}

std::function<void(std::int64_t)> bind_linear_weight_grad(const RankView& view, const Operation& op,
                                                          std::int32_t micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ValueId gradient = op.writes.front();
  std::vector<Matrix> grads;
  for (std::size_t i = 1; i < op.reads.size(); ++i) grads.push_back(of.read(i));
  return [x = of.read(0), parts = side_by_side(grads, of.weight(gradient), of.bias(gradient)), into](std::int64_t) {
    for (const Output& dy : parts) linear_weight_grad(x, dy.values, dy.weight, dy.bias, into);
  };
}

}  // namespace weft
