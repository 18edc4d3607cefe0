// PowerSGD (Vogels et al. 2019, algorithm 1): a matrix of gradients, to which the errors of earlier steps are added, is
// sent as two factors of few columns. With M = gradient + error on each of n ranks and a basis Q that all ranks share:
//   P = the sum over ranks of M Q, made orthonormal;  Q' = the sum over ranks of transposed(M) P;
//   the sum of the gradients is taken to be P transposed(Q'), each rank's error becomes M - P transposed(Q') / n, and
//   Q', made orthonormal, is the basis of the next step.
// So P transposed(Q') is the projection of the sum of all M onto the columns of P.
#pragma once

#include <cstdint>
#include <span>

namespace weft {

// A matrix in a row of elements, and where its factors lie in theirs. Elements of a matrix lie row by row, those of a
// factor column by column.
struct LowRankMatrix {
  std::int64_t offset = 0, rows = 0, columns = 0, rank = 0;
  std::int64_t left = 0, right = 0;  // where its factors of rows * rank and columns * rank elements begin
  friend bool operator==(const LowRankMatrix&, const LowRankMatrix&) = default;
};

// Makes the columns of a factor orthonormal, in place and in their order (modified Gram-Schmidt, twice). A column that
// the ones before it leave nothing of, zeros too, is drawn anew from the seed: ranks with the same factor and seed get
// the same numbers, and a factor of zeros becomes the basis that training begins with.
void make_orthonormal(std::span<float> factor, std::int64_t rank, std::uint64_t seed);
// left = (values + errors) right; all of one matrix.
void multiply_by_right(const LowRankMatrix& matrix, std::span<const float> values, std::span<const float> errors,
                       std::span<const float> right, std::span<float> left);
// right = transposed(values + errors) left.
void multiply_by_left(const LowRankMatrix& matrix, std::span<const float> values, std::span<const float> errors,
                      std::span<const float> left, std::span<float> right);

struct LowRankSquares {
  double gradient = 0, error = 0;  // of this rank's own gradient, and of its new errors
};
// values becomes left transposed(right), and errors what that takes away of this rank's share of it, one of `ranks`.
LowRankSquares expand(const LowRankMatrix& matrix, std::span<const float> left, std::span<const float> right,
                      std::int64_t ranks, std::span<float> values, std::span<float> errors);

}  // namespace weft
