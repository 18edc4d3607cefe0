// A plain text table for terminals. The first column is left aligned, the others are right aligned.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace weft {

inline constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add_row(std::vector<std::string> cells);
  // Returns lines of equal width with a rule below the header. Widths count code points, not bytes. Columns beyond
  // `max_width` follow below, in blocks that begin with the first column again.
  std::string to_string(std::size_t max_width = kAnyWidth) const;

 private:
  std::vector<std::size_t> widths() const;
  // The first column, and the columns from `first` to before `end`.
  std::string block(const std::vector<std::size_t>& widths, std::size_t first, std::size_t end,
                    std::size_t max_width) const;

  std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft
