#include "exec/bind_low_rank.hpp"

#include <algorithm>
#include <functional>

#include "base/error.hpp"
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

  // Calls visit(elements as they are, their place behind the left factors).
  template <class Visit>
  void for_each_plain(const Visit& visit) const {
    std::int64_t at = sizes.left;
    for (const ElementRange& range : sizes.plain) at -= range.size();
    for (const ElementRange& range : sizes.plain) {
      visit(range, at);
      at += range.size();
    }
  }

  std::uint64_t seed_of(std::size_t matrix, std::int64_t step, LowRankStep number) const {
    return mix_bits(mix_bits(seed + matrix) + static_cast<std::uint64_t>(kLowRankSteps * step) +
                    static_cast<std::uint64_t>(number));
  }
};

std::span<float> factor(std::span<float> factors, std::int64_t begin, std::int64_t size) {
  return factors.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size));
}

void make_left(const LowRankGradient& of, const Vector& basis, const Vector& left) {
  const std::span<float> gradient = floats_of(of.gradient), errors = floats_of(of.errors), to = floats_of(left);
  for (const LowRankMatrix& matrix : of.sizes.matrices) {
    multiply_by_right(matrix, gradient, errors, floats_of(basis), to);
  }
  of.for_each_plain([&](const ElementRange& range, std::int64_t at) {
    std::transform(gradient.begin() + range.begin, gradient.begin() + range.end, errors.begin() + range.begin,
                   to.begin() + at, std::plus<>());
  });
}

void make_right(const LowRankGradient& of, std::int64_t step, const Vector& sum, const Vector& left,
                const Vector& right) {
  const std::span<float> from = floats_of(sum), to = floats_of(left);
  std::ranges::copy(from, to.begin());
  for (std::size_t i = 0; i < of.sizes.matrices.size(); ++i) {
    const LowRankMatrix& matrix = of.sizes.matrices[i];
    make_orthonormal(factor(to, matrix.left, matrix.rank * matrix.rows), matrix.rank,
                     of.seed_of(i, step, LowRankStep::right));
    multiply_by_left(matrix, floats_of(of.gradient), floats_of(of.errors), to, floats_of(right));
  }
}

LowRankSquares make_product(const LowRankGradient& of, std::int64_t step, const Vector& left, const Vector& sum,
                            const Vector& basis) {
  const std::span<float> gradient = floats_of(of.gradient), errors = floats_of(of.errors), plain = floats_of(left);
  const std::span<float> right = floats_of(sum), next = floats_of(basis);
  std::ranges::copy(right, next.begin());
  LowRankSquares squares;
  for (std::size_t i = 0; i < of.sizes.matrices.size(); ++i) {
    const LowRankMatrix& matrix = of.sizes.matrices[i];
    const LowRankSquares own = expand(matrix, plain, right, of.ranks, gradient, errors);
    squares.gradient += own.gradient;
    squares.error += own.error;
    make_orthonormal(factor(next, matrix.right, matrix.rank * matrix.columns), matrix.rank,
                     of.seed_of(i, step, LowRankStep::product));
  }
  of.for_each_plain([&](const ElementRange& range, std::int64_t at) {
    std::copy_n(plain.begin() + at, range.size(), gradient.begin() + range.begin);
    std::fill_n(errors.begin() + range.begin, range.size(), 0.0F);
  });
  return squares;
}

}  // namespace

BoundOperation bind_low_rank(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                             CompressionErrors& errors, const Operation& op) {
  if (view.memory().is_of_device()) fail("'{}': --compress has no kernels for GPUs yet", describe(op));
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const LowRankGradient of{.sizes = factor_sizes(p.tensors, op.key.dims[1]),
                           .gradient = {view.data(p.gradient), p.elements},
                           .errors = {view.data(p.gradient_error), p.elements},
                           .ranks = view.group_size(p.group),
                           .seed = parameters.seed_of_basis(p, seed)};
  const auto whole = [&](ValueId value) { return Vector{view.data(value), view.original().value(value).elements()}; };
  const auto step_of_plan = static_cast<LowRankStep>(op.key.dims[4]);
  if (step_of_plan == LowRankStep::left) {
    return [of, basis = whole(p.basis), left = whole(write_of(op, Operand::encoded))](Kernels& kernels, std::int64_t) {
      kernels.synchronize();
      make_left(of, basis, left);
    };
  }
  const Vector read = whole(read_of(op, Operand::encoded));
  if (step_of_plan == LowRankStep::right) {
    return [of, read, left = whole(write_of(op, Operand::left_factor)), right = whole(write_of(op, Operand::encoded))](
               Kernels& kernels, std::int64_t step) {
      kernels.synchronize();
      make_right(of, step, read, left, right);
    };
  }
  return [of, read, left = whole(read_of(op, Operand::left_factor)), basis = whole(p.basis), noted = &errors](
             Kernels& kernels, std::int64_t step) {
    kernels.synchronize();
    const LowRankSquares squares = make_product(of, step, left, read, basis);
    noted->add(step, squares.gradient, squares.error);
  };
}

}  // namespace weft
