#include "exec/bind_linear.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

// A matrix of the output goes with the rows of the weight that make it.
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

// Returns the values of the operands that are there.
std::vector<Matrix> present(std::initializer_list<Matrix> matrices) {
  std::vector<Matrix> found;
  for (const Matrix& matrix : matrices) {
    if (!matrix.empty()) found.push_back(matrix);
  }
  return found;
}

std::vector<Matrix> output_grads(const Operands& of) {
  return present({of.read(Operand::output_grad), of.find_read(Operand::output_beside_grad)});
}

}  // namespace

KernelCalls bind_linear(const RankView& view, const Operation& op, MicroBatch micro_batch, ElementRange rows,
                        ElementRange read_rows) {
  const Operands of(view, op, micro_batch, rows);
  const Operands read(view, op, micro_batch, read_rows.empty() ? rows : read_rows);
  const ValueId weight = read_of(op, Operand::weight);
  const std::vector<Matrix> outputs = present({of.write(Operand::output), of.find_write(Operand::output_beside)});
  return [x = read.read(Operand::input), parts = side_by_side(outputs, of.weight(weight), of.added_bias(weight))](
             Kernels& kernels, std::int64_t) {
    for (const Output& y : parts) kernels.linear(x, y.weight, y.bias, y.values);
  };
}

KernelCalls bind_linear_input_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, ElementRange rows,
                                   ElementRange read_rows) {
  const Operands of(view, op, micro_batch, rows);
  const Operands read(view, op, micro_batch, read_rows.empty() ? rows : read_rows);
  return
      [parts = side_by_side(output_grads(read), of.weight(read_of(op, Operand::weight)), {}),
       onto = of.find_read(Operand::addend_grad), dx = of.write(Operand::input_grad)](Kernels& kernels, std::int64_t) {
        Into into = Into::overwrite;
        for (const Output& dy : parts) {
          kernels.linear_input_grad(dy.values, dy.weight, dx, into);
          into = Into::add;
        }
        if (!onto.empty()) kernels.add(dx, onto, dx);
      };
}

KernelCalls bind_linear_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ValueId gradient = write_of(op, Operand::weight_grad);
  return [x = of.read(Operand::input), parts = side_by_side(output_grads(of), of.weight(gradient), of.bias(gradient)),
          into](Kernels& kernels, std::int64_t) {
    for (const Output& dy : parts) kernels.linear_weight_grad(x, dy.values, dy.weight, dy.bias, into);
  };
}

}  // namespace weft
