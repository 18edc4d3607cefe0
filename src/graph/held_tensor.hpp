// What one rank holds of a parameter's tensors under tensor and expert parallelism, and which elements of the whole
// these are; both follow from the sharding. One mapping serves the sizes of parameters, kernels, initialisation,
// records and checkpoints.
#pragma once

#include <vector>

#include "base/element_range.hpp"
#include "graph/group_kind.hpp"
#include "graph/parameter_tensors.hpp"

namespace weft {

// A rank's part of a tensor, seen as a matrix of shape.front() rows (a vector has rows of one element).
struct HeldTensor {
  ParameterTensor whole;
  std::int64_t offset = 0;              // where the part begins in the rank's parameter value
  std::vector<ElementRange> rows = {};  // of the whole, one after the other; each may be empty
  ElementRange columns = {};
  std::int64_t padding = 0;  // rows of zeros behind them: tokens that no vocabulary has
  bool copy = false;         // a lower rank holds the same and is responsible for it

  std::int64_t row_count() const;  // padding included
  std::int64_t elements() const { return row_count() * columns.size(); }
  std::int64_t width() const { return whole.elements() / whole.shape.front(); }  // columns of the whole
};

// Where a rank stands among those that hold different parts of the model's layers.
struct TensorHolder {
  std::int64_t tp = 0;
  std::int64_t ep = 0, etp = 0;  // in the experts' mesh
  AxisPlace on(Axis axis, const Layout& layout) const;
};
// The tensors of a parameter on a rank, in order, without gaps: as large as the graph declares it. Of experts only
// those that the rank has.
std::vector<HeldTensor> held_tensors(const Transformer& model, const Layout& layout, std::int32_t layer, Role role,
                                     const TensorHolder& holder);

// The group whose members divide a parameter into ZeRO's shards; without ZeRO, who holds the same parameter.
GroupKind sharding_group(const Layout& layout, Role role);

// Elements that follow each other both in a rank's part and in the whole tensor.
struct HeldRange {
  std::int64_t in_part = 0;   // from the begin of the part
  std::int64_t in_whole = 0;  // row-major
  std::int64_t count = 0;
};
// Visits the elements `range` of the part, without padding, as ascending ranges of the whole.
template <class Visit>  // visit(HeldRange)
void for_each_range(const HeldTensor& tensor, ElementRange range, const Visit& visit) {
  const std::int64_t held = tensor.columns.size(), width = tensor.width();
  std::int64_t first = 0;  // of the rows, in the part
  for (const ElementRange& rows : tensor.rows) {
    const ElementRange wanted = overlap(range, {first, first + rows.size() * held});
    for (std::int64_t at = wanted.begin; at < wanted.end;) {
      const std::int64_t row = (at - first) / held, column = (at - first) % held;
      // Whole rows are one range.
      const std::int64_t end = held == width ? wanted.end : std::min(wanted.end, first + (row + 1) * held);
      visit(HeldRange{at, (rows.begin + row) * width + tensor.columns.begin + column, end - at});
      at = end;
    }
    first += rows.size() * held;
  }
}

}  // namespace weft
