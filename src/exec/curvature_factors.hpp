// The factors of K-FAC's curvature (graph/kfac.hpp) that a rank averages over steps and inverts.
#pragma once

#include <string>
#include <vector>

#include "base/element_range.hpp"
#include "exec/checkpoint/manifest.hpp"
#include "exec/rank_view.hpp"
#include "kernels/matrix.hpp"

namespace weft {

struct ParameterState;

struct CurvatureFactor {
  std::size_t parameter = 0;  // index into ParameterStates::all()
  std::int32_t part = 0;      // 0: of the layer's inputs, 1: of its output gradients
  std::string tensor;         // the layer's weight
  Matrix average, inverse;    // in the rank's memory
  // The rows of the whole factor that the rank has, one after the other; the columns are the same. Under tensor
  // parallelism they are those of its part of the layer.
  std::vector<ElementRange> rows;
  bool copy = false;  // the first tensor-parallel rank has the same and answers for it

  TensorKind kind() const { return part == 0 ? TensorKind::input_factor : TensorKind::output_factor; }
};

// Returns those of a rank, ordered by parameter, then part.
std::vector<CurvatureFactor> find_factors(const RankView& view, const std::vector<ParameterState>& parameters);

}  // namespace weft
