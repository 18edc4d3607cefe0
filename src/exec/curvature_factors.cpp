#include "exec/curvature_factors.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "exec/parameter_state.hpp"

namespace weft {
namespace {

Matrix square_matrix(const RankView& view, ValueId value) {
  const std::int64_t rows = view.original().value(value).shape.front();
  return Matrix::dense(view.data(value), rows, rows);
}

// Says which rows of the whole factor belong to a rank's part of the layer's weight.
void place(CurvatureFactor& factor, const HeldTensor& weight, const RankView& view) {
  const std::int64_t all = factor.part == 0 ? weight.width() : weight.whole.shape.front();
  std::int64_t held = 0;
  for (const ElementRange& rows : factor.part == 0 ? std::vector{weight.columns} : weight.rows) {
    if (rows.empty()) continue;
    factor.rows.push_back(rows);
    held += rows.size();
  }
  WEFT_CHECK(held == factor.average.rows);
  factor.tensor = weight.whole.name;
  factor.copy = held == all && view.coordinate(Axis::tp) > 0;
}

}  // namespace

std::vector<CurvatureFactor> find_factors(const RankView& view, const std::vector<ParameterState>& parameters) {
  std::vector<CurvatureFactor> factors;
  for (const Operation& op : view.original().operations) {
    if (op.role != Role::inversion || op.rank_class != view.rank_class()) continue;
    const auto parameter = std::ranges::find_if(
        parameters, [&](const ParameterState& p) { return p.layer == op.layer && p.role == op.subject; });
    WEFT_CHECK(parameter != parameters.end());
    CurvatureFactor factor;
    factor.parameter = static_cast<std::size_t>(parameter - parameters.begin());
    factor.part = op.part;
    factor.average = square_matrix(view, write_of(op, Operand::factor));
    factor.inverse = square_matrix(view, write_of(op, Operand::inverse));
    place(factor, parameter->tensors.front(), view);
    factors.push_back(std::move(factor));
  }
  std::ranges::sort(factors, {}, [](const CurvatureFactor& f) { return std::tuple(f.parameter, f.part); });
  return factors;
}

}  // namespace weft
