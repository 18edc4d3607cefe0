// A plain text table for terminals: first column left, the others right aligned.
#pragma once

#include <string>
#include <vector>

namespace weft {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header);
  void add_row(std::vector<std::string> cells);
  // Lines of equal width, a rule below the header; widths count code points, not bytes.
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace weft
