// The matrices that an operation of the graph works on, found in a rank's memory.
#pragma once

#include "exec/parameter_table.hpp"
#include "exec/rank_view.hpp"
#include "kernels/kernels.hpp"

namespace weft {

class Operands {
 public:
  Operands(const RankView& view, const Operation& op, std::int32_t micro_batch)
      : view_(view), op_(op), micro_batch_(micro_batch) {}

  Matrix read(std::size_t index) const { return matrix(op_.reads[index].value); }
  Matrix last_read() const { return read(op_.reads.size() - 1); }
  Matrix write(std::size_t index = 0) const { return matrix(op_.writes[index]); }
  Vector flat(ValueId value) const;

  // The tensors of the parameter that the operation uses, in the memory of `value` (weights, whole or gathered, or
  // their gradient).
  Matrix weight(ValueId value) const;
  Vector bias(ValueId value) const;  // empty where it has none
  NormWeights norm(ValueId value) const;

 private:
  Matrix matrix(ValueId value) const;
  const RankView& view_;
  const Operation& op_;
  std::int32_t micro_batch_;
};

}  // namespace weft
