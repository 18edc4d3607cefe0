// Finds the matrices that an operation of the graph works on in a rank's memory.
#pragma once

#include "base/element_range.hpp"
#include "exec/rank_view.hpp"
#include "graph/held_tensor.hpp"
#include "kernels/kernels.hpp"

namespace weft {

// Holds the weights of the experts that a rank has, in order.
struct ExpertWeights {
  std::vector<Matrix> weights;
  std::vector<Vector> biases;      // empty where there are none
  bool biases_are_copies = false;  // where several ranks' products are summed, another one adds them
};

class Operands {
 public:
  // `rows` are those of a cut operation; empty means all.
  Operands(const RankView& view, const Operation& op, MicroBatch micro_batch, ElementRange rows = {})
      : view_(view), op_(op), micro_batch_(micro_batch), rows_(rows) {}

  Matrix read(Operand operand) const { return matrix(read_of(op_, operand)); }
  Matrix write(Operand operand) const { return matrix(write_of(op_, operand)); }
  // The result is empty where the operation has no such operand.
  Matrix find_read(Operand operand) const { return matrix_or_empty(weft::find_read(op_, operand)); }
  Matrix find_write(Operand operand) const { return matrix_or_empty(weft::find_write(op_, operand)); }
  Matrix matrix(ValueId value) const;
  Vector flat(ValueId value) const;
  // Returns a byte for every element, in these rows, of a value that dropout writes.
  KeptElements kept(ValueId value) const;

  // These return tensors of the parameter that the operation uses, in the memory of `value` (weights, whole or
  // gathered, or their gradient).
  Matrix weight(ValueId value) const;
  // The result is empty where it has none.
  Vector bias(ValueId value) const;
  // The same, but where several ranks' products are summed only the first one adds it.
  Vector added_bias(ValueId value) const;
  ExpertWeights experts(ValueId value) const;
  NormWeights norm(ValueId value) const;
  // Returns RMSNorm with the index-th tensor of the parameter.
  NormWeights norm_of_tensor(ValueId value, std::size_t index) const;

 private:
  Matrix matrix_or_empty(ValueId value) const { return value.valid() ? matrix(value) : Matrix{}; }
  std::vector<HeldTensor> tensors() const;
  Vector vector(ValueId value, const HeldTensor& tensor) const {
    return {view_.data(value, micro_batch_) + tensor.offset, tensor.elements()};
  }

  const RankView& view_;
  const Operation& op_;
  MicroBatch micro_batch_;
  ElementRange rows_;
};

}  // namespace weft
