// Linear programs, solved by COIN-OR's CBC where it is installed (Debian: coinor-libcbc3). It is looked for when it is
// first needed: Weft is built and runs without it, and whoever asks has another way.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace weft {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// Minimises the costs of the columns.
struct LinearProgram {
  struct Entry {
    std::int32_t row = 0;
    double value = 0;
  };
  struct Column {
    double cost = 0;
    double least = 0, most = kUnbounded;
    bool is_whole = false;
    std::vector<Entry> entries;  // of different rows
  };
  struct Row {
    double least = 0, most = 0;
  };
  std::vector<Column> columns;
  std::vector<Row> rows;

  std::int32_t add_row(double least, double most);
  std::int32_t add_column(Column column);
};

bool has_linear_solver();

// The values of the columns at the optimum; none where there is no solver or it found none within `seconds`.
std::optional<std::vector<double>> solve(const LinearProgram& program, double seconds);

}  // namespace weft
