#include "exec/operands.hpp"

#include "base/error.hpp"
#include "exec/parameter_state.hpp"
#include "exec/train_settings.hpp"

namespace weft {

Matrix Operands::matrix(ValueId value) const {
  const Value& v = view_.plan().graph.value(value);
  const std::int64_t columns = v.shape.back();
  return Matrix::dense(view_.data(value, micro_batch_), v.elements() / columns, columns);
}

Vector Operands::flat(ValueId value) const {
  return {view_.data(value, micro_batch_), view_.plan().graph.value(value).elements()};
}

Matrix Operands::weight(ValueId value) const {
  const auto tensors = parameter_tensors(view_.plan().model, view_.plan().layout, op_.layer,
                                         parameter_role(view_.plan().model, view_.plan().layout, op_.role));
  const ParameterTensor& w = tensors.front();
  WEFT_CHECK(w.shape.size() == 2);
  return Matrix::dense(view_.data(value, micro_batch_) + w.offset, w.shape[0], w.shape[1]);
}

Vector Operands::bias(ValueId value) const {
  const auto tensors = parameter_tensors(view_.plan().model, view_.plan().layout, op_.layer,
                                         parameter_role(view_.plan().model, view_.plan().layout, op_.role));
  if (tensors.size() < 2) return {};
  return {view_.data(value, micro_batch_) + tensors[1].offset, tensors[1].elements()};
}

NormWeights Operands::norm(ValueId value) const {
  const auto tensors = parameter_tensors(view_.plan().model, view_.plan().layout, op_.layer,
                                         parameter_role(view_.plan().model, view_.plan().layout, op_.role));
  const auto vector = [&](std::size_t i) {
    return Vector{view_.data(value, micro_batch_) + tensors[i].offset, tensors[i].elements()};
  };
  return {vector(0), tensors.size() > 1 ? vector(1) : Vector{}, kNormEpsilon};
}

}  // namespace weft
