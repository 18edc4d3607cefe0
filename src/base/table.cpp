#include "base/table.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

std::size_t display_width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace

TextTable::TextTable(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void TextTable::add_row(std::vector<std::string> cells) {
  WEFT_CHECK(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::to_string() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string padding(widths[i] - display_width(rows_[r][i]), ' ');
      if (i > 0) text += "  ";
      text += i == 0 ? rows_[r][i] + padding : padding + rows_[r][i];
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += '\n';
    if (r == 0) {
      std::size_t total = 2 * (widths.size() - 1);
      for (const std::size_t width : widths) total += width;
      text += std::string(total, '-') + "\n";
    }
  }
  return text;
}

}  // namespace weft
