#include "exec/bind_low_rank.hpp"

#include <memory>

#include "base/mix.hpp"
#include "graph/factor_sizes.hpp"

namespace weft {
namespace {

// What all steps of a parameter work on.
struct LowRankGradient {
  FactorSizes sizes;
  Vector gradient, errors;
  std::int64_t ranks = 1;
  std::uint64_t seed = 0;  // the same on all ranks

  Matrix matrix_in(const Vector& all, const LowRankMatrix& matrix) const {
    return Matrix::dense(all.data + matrix.offset, matrix.rows, matrix.columns);
  }

  std::uint64_t seed_of(std::size_t matrix, std::int64_t step, LowRankStep number) const {
    return mix_bits(mix_bits(seed + matrix) + static_cast<std::uint64_t>(kLowRankSteps * step) +
                    static_cast<std::uint64_t>(number));
  }
};

// A factor has a row for each of its columns.
Matrix left_of(const LowRankMatrix& matrix, const Vector& factors) {
  return Matrix::dense(factors.data + matrix.left, matrix.rank, matrix.rows);
}
Matrix right_of(const LowRankMatrix& matrix, const Vector& factors) {
  return Matrix::dense(factors.data + matrix.right, matrix.rank, matrix.columns);
}

Matrix as_row(const Vector& x) {
  return Matrix::dense(x.data, 1, x.size);
}

// Elements that travel as they are.
struct PlainElements {
  Vector gradient, errors, sent;
};
std::vector<PlainElements> plain_elements(const LowRankGradient& of, const Vector& left) {
  std::int64_t at = of.sizes.left;
  for (const ElementRange& range : of.sizes.plain) at -= range.size();
  std::vector<PlainElements> all;
  for (const ElementRange& range : of.sizes.plain) {
    all.push_back({of.gradient.slice(range.begin, range.end), of.errors.slice(range.begin, range.end),
                   left.slice(at, at + range.size())});
    at += range.size();
  }
  return all;
}

// In a step that was recorded, calls which the host gives new data are made again; so each is a piece of its own.
using Pieces = std::vector<BoundOperation>;

Pieces bind_left(const LowRankGradient& of, const Vector& basis, const Vector& left) {
  Pieces pieces;
  for (const LowRankMatrix& matrix : of.sizes.matrices) {
    pieces.emplace_back([gradient = of.matrix_in(of.gradient, matrix), errors = of.matrix_in(of.errors, matrix),
                         right = right_of(matrix, basis), to = left_of(matrix, left)](Kernels& kernels, std::int64_t) {
      kernels.left_factor(gradient, errors, right, to);
    });
  }
  for (const PlainElements& plain : plain_elements(of, left)) {
    pieces.emplace_back([plain](Kernels& kernels, std::int64_t) {
      kernels.add(as_row(plain.gradient), as_row(plain.errors), as_row(plain.sent));
    });
  }
  return pieces;
}

Pieces bind_right(const LowRankGradient& of, const Vector& sum, const Vector& left, const Vector& right) {
  Pieces pieces;
  pieces.emplace_back([sum, left](Kernels& kernels, std::int64_t) { kernels.copy(as_row(sum), as_row(left)); });
  for (std::size_t i = 0; i < of.sizes.matrices.size(); ++i) {
    const LowRankMatrix& matrix = of.sizes.matrices[i];
    const Matrix own = left_of(matrix, left);
    pieces.emplace_back([of, i, own](Kernels& kernels, std::int64_t step) {
      kernels.make_orthonormal(own, of.seed_of(i, step, LowRankStep::right));
    });
    pieces.emplace_back([gradient = of.matrix_in(of.gradient, matrix), errors = of.matrix_in(of.errors, matrix), own,
                         to = right_of(matrix, right)](Kernels& kernels, std::int64_t) {
      kernels.right_factor(gradient, errors, own, to);
    });
  }
  return pieces;
}

Pieces bind_product(const LowRankGradient& of, const Vector& left, const Vector& sum, const Vector& basis,
                    CompressionErrors& noted) {
  Pieces pieces;
  pieces.emplace_back([sum, basis](Kernels& kernels, std::int64_t) { kernels.copy(as_row(sum), as_row(basis)); });
  for (std::size_t i = 0; i < of.sizes.matrices.size(); ++i) {
    const LowRankMatrix& matrix = of.sizes.matrices[i];
    const auto squares = std::make_shared<EncodedSquares>();  // of a step, between the kernel and its end
    pieces.emplace_back(
        [gradient = of.matrix_in(of.gradient, matrix), errors = of.matrix_in(of.errors, matrix), ranks = of.ranks,
         own = left_of(matrix, left), right = right_of(matrix, sum), squares](Kernels& kernels, std::int64_t) {
          kernels.factor_product(own, right, ranks, gradient, errors, *squares);
        },
        [squares, to = &noted](Kernels&, std::int64_t step) { to->add(step, squares->gradient, squares->error); });
    pieces.emplace_back([of, i, next = right_of(matrix, basis)](Kernels& kernels, std::int64_t step) {
      kernels.make_orthonormal(next, of.seed_of(i, step, LowRankStep::product));
    });
  }
  for (const PlainElements& plain : plain_elements(of, left)) {
    pieces.emplace_back([plain](Kernels& kernels, std::int64_t) {
      kernels.copy(as_row(plain.sent), as_row(plain.gradient));
      kernels.fill(plain.errors, 0.0F);
    });
  }
  return pieces;
}

}  // namespace

BoundOperation bind_low_rank(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                             CompressionErrors& errors, const Operation& op) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const LowRankGradient of{.sizes = factor_sizes(p.tensors, op.key.dims[1]),
                           .gradient = {view.data(p.gradient), p.elements},
                           .errors = {view.data(p.gradient_error), p.elements},
                           .ranks = view.group_size(p.group),
                           .seed = parameters.seed_of_basis(p, seed)};
  const auto whole = [&](ValueId value) { return Vector{view.data(value), view.original().value(value).elements()}; };
  switch (static_cast<LowRankStep>(op.key.dims[4])) {
    case LowRankStep::left:
      return BoundOperation::join(bind_left(of, whole(p.basis), whole(write_of(op, Operand::encoded))));
    case LowRankStep::right:
      return BoundOperation::join(bind_right(of, whole(read_of(op, Operand::encoded)),
                                             whole(write_of(op, Operand::left_factor)),
                                             whole(write_of(op, Operand::encoded))));
    case LowRankStep::product:
      break;
  }
  return BoundOperation::join(bind_product(of, whole(read_of(op, Operand::left_factor)),
                                           whole(read_of(op, Operand::encoded)), whole(p.basis), errors));
}

}  // namespace weft
