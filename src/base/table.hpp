// A plain text table for terminals. The first column is left aligned, the others are right aligned.
#pragma once

#include <string>
#include <vector>

namespace weft {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add_row(std::vector<std::string> cells);
  // Returns lines of equal width with a rule below the header. Widths count code points, not bytes.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft
