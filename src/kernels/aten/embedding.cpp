#include <algorithm>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

constexpr std::int64_t kColumnGrain = 128;

void clear(const Matrix& x) {
  for (std::int64_t r = 0; r < x.rows; ++r) std::fill_n(row(x, r), x.columns, 0.0F);
}

void add_to(float* sum, const float* values, std::int64_t begin, std::int64_t end) {
  for (std::int64_t c = begin; c < end; ++c) sum[c] += values[c];
}

// The row of a token; nullptr where another part of the vocabulary has it.
float* row_of_token(const Matrix& table, std::int64_t first_token, std::int64_t token) {
  const std::int64_t index = token - first_token;
  return index >= 0 && index < table.rows ? row(table, index) : nullptr;
}
float* row_of_position(const LearnedPositions& positions, std::int64_t r) {
  const auto index = static_cast<std::size_t>(r) % positions.positions.size();
  return row(positions.table, positions.positions[index]);
}

}  // namespace

void AtenKernels::embedding(Tokens tokens, const Matrix& table, std::int64_t first_token,
                            const LearnedPositions& positions, const Matrix& y) {
  in_ranges(y.rows, row_grain(y.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* of_token = row_of_token(table, first_token, tokens[r]);
      const float* of_position = positions.table.empty() ? nullptr : row_of_position(positions, r);
      float* out = row(y, r);
      if (of_token != nullptr && of_position != nullptr) {
        for (std::int64_t c = 0; c < y.columns; ++c) out[c] = of_token[c] + of_position[c];
      } else if (const float* only = of_token != nullptr ? of_token : of_position; only != nullptr) {
        std::copy_n(only, y.columns, out);
      } else {
        std::fill_n(out, y.columns, 0.0F);
      }
    }
  });
}

// Threads share the columns: tokens repeat, and each sum keeps its order.
void AtenKernels::embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, std::int64_t first_token,
                                        Into into) {
  if (into == Into::overwrite) clear(dtable);
  in_ranges(dy.columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < dy.rows; ++r)
      if (float* sum = row_of_token(dtable, first_token, tokens[r])) add_to(sum, row(dy, r), begin, end);
  });
}

void AtenKernels::positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) {
  if (into == Into::overwrite) clear(d_positions.table);
  in_ranges(dy.columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < dy.rows; ++r) add_to(row_of_position(d_positions, r), row(dy, r), begin, end);
  });
}

}  // namespace weft::aten
