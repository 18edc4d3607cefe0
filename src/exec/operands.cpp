#include "exec/operands.hpp"

#include "base/error.hpp"
#include "exec/parameter_state.hpp"
#include "exec/train_settings.hpp"

namespace weft {

Matrix Operands::matrix(ValueId value) const {
  const Value& v = view_.plan().graph.value(value);
  const std::int64_t columns = v.shape.back();
  const Matrix whole = Matrix::dense(view_.data(value, micro_batch_), v.elements() / columns, columns);
  return rows_.empty() ? whole : whole.row_slice(rows_.begin, rows_.end);
}

Vector Operands::flat(ValueId value) const {
  return {view_.data(value, micro_batch_), view_.plan().graph.value(value).elements()};
}

KeptElements Operands::kept(ValueId value) const {
  const Value& v = view_.plan().graph.value(value);
  WEFT_CHECK(v.bytes_per_element == 1);
  const std::int64_t columns = v.shape.back();
  const ElementRange rows = rows_.empty() ? ElementRange{0, v.elements() / columns} : rows_;
  auto* const data = reinterpret_cast<std::uint8_t*>(view_.data(value, micro_batch_).address);
  return {data + rows.begin * columns, static_cast<std::size_t>(rows.size() * columns)};
}

std::vector<HeldTensor> Operands::tensors() const {
  const Plan& plan = view_.plan();
  return held_tensors(plan.model, plan.layout, op_.layer, parameter_role(plan.model, plan.layout, op_.role),
                      view_.holder());
}

Matrix Operands::weight(ValueId value) const {
  const HeldTensor w = tensors().front();
  WEFT_CHECK(w.whole.shape.size() == 2);
  return Matrix::dense(view_.data(value, micro_batch_) + w.offset, w.row_count(), w.columns.size());
}

Vector Operands::bias(ValueId value) const {
  const std::vector<HeldTensor> held = tensors();
  return held.size() < 2 ? Vector{} : vector(value, held[1]);
}

Vector Operands::added_bias(ValueId value) const {
  const std::vector<HeldTensor> held = tensors();
  const bool sums = held.front().columns.size() < held.front().width();
  return held.size() < 2 || (sums && held[1].copy) ? Vector{} : vector(value, held[1]);
}

ExpertWeights Operands::experts(ValueId value) const {
  ExpertWeights all;
  for (const HeldTensor& tensor : tensors()) {
    if (tensor.whole.shape.size() == 2) {
      all.weights.push_back(
          Matrix::dense(view_.data(value, micro_batch_) + tensor.offset, tensor.row_count(), tensor.columns.size()));
    } else {
      all.biases.push_back(vector(value, tensor));
      all.biases_are_copies = tensor.copy;
    }
  }
  return all;
}

NormWeights Operands::norm(ValueId value) const {
  const std::vector<HeldTensor> held = tensors();
  return {vector(value, held[0]), held.size() > 1 ? vector(value, held[1]) : Vector{}, kNormEpsilon};
}

NormWeights Operands::norm_of_tensor(ValueId value, std::size_t index) const {
  return {vector(value, tensors()[index]), {}, kNormEpsilon};
}

}  // namespace weft
