#include "exec/bind_slices.hpp"

#include "base/error.hpp"

namespace weft {
namespace {

// Rows of the matrix of all slices up to one, and the same rows in a slice's own matrix.
struct SliceRows {
  Matrix in_all, of_slice;
};

// Walks the matrices of the slices, which `touches` names in order, along the rows of the matrix of all of them.
template <class Touches>
void append_slice_rows(const Operands& of, const Touches& touches, Operand operand, const Matrix& all,
                       std::vector<SliceRows>& found) {
  std::int64_t row = 0;
  for (const auto& touch : touches) {
    if (touch.operand != operand) continue;
    const Matrix slice = of.matrix(touch.value);
    found.push_back({all.row_slice(row, row + slice.rows), slice});
    row += slice.rows;
  }
  WEFT_CHECK(row == all.rows);
}

}  // namespace

KernelCalls bind_kv_join(const RankView& view, const Operation& op, MicroBatch micro_batch) {
  const Operands of(view, op, micro_batch);
  std::vector<SliceRows> rows;
  for (const Write& write : op.writes) {
    append_slice_rows(of, op.reads, write.operand, of.matrix(write.value), rows);
  }
  return [rows](Kernels& kernels, std::int64_t) {
    for (const SliceRows& r : rows) kernels.copy(r.of_slice, r.in_all);
  };
}

KernelCalls bind_kv_grad_sum(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  std::vector<SliceRows> rows;
  for (const Read& read : op.reads) append_slice_rows(of, op.writes, read.operand, of.matrix(read.value), rows);
  return [rows, into](Kernels& kernels, std::int64_t) {
    for (const SliceRows& r : rows) {
      if (into == Into::overwrite) {
        kernels.copy(r.in_all, r.of_slice);
      } else {
        kernels.add(r.of_slice, r.in_all, r.of_slice);
      }
    }
  };
}

}  // namespace weft
