#include <algorithm>

#include "kernels/aten/kernels_aten.hpp"
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

}  // namespace

void embedding(Tokens tokens, const Matrix& table, const LearnedPositions& positions, const Matrix& y) {
  in_ranges(y.rows, row_grain(y.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* of_token = row(table, tokens[static_cast<std::size_t>(r)]);
      float* out = row(y, r);
      if (positions.table.empty()) {
        std::copy_n(of_token, y.columns, out);
        continue;
      }
      const float* of_position = row(positions.table, positions.first_position + r % positions.sequence);
      for (std::int64_t c = 0; c < y.columns; ++c) out[c] = of_token[c] + of_position[c];
    }
  });
}

// Threads share the columns: tokens repeat, and each sum keeps its order.
void embedding_weight_grad(Tokens tokens, const Matrix& dy, const Matrix& dtable, Into into) {
  if (into == Into::overwrite) clear(dtable);
  in_ranges(dy.columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < dy.rows; ++r)
      add_to(row(dtable, tokens[static_cast<std::size_t>(r)]), row(dy, r), begin, end);
  });
}

void positions_weight_grad(const Matrix& dy, const LearnedPositions& d_positions, Into into) {
  if (into == Into::overwrite) clear(d_positions.table);
  in_ranges(dy.columns, kColumnGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = 0; r < dy.rows; ++r)
      add_to(row(d_positions.table, d_positions.first_position + r % d_positions.sequence), row(dy, r), begin, end);
  });
}

}  // namespace weft::aten
