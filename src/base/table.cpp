#include "base/table.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kGap = 2;  // between columns

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

std::vector<std::size_t> TextTable::widths() const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  return widths;
}

std::string TextTable::block(const std::vector<std::size_t>& widths, std::size_t first, std::size_t end,
                             std::size_t max_width) const {
  // A column that is too wide by itself holds words, which the terminal's output wraps: it begins at once.
  const bool is_wide = first < end && widths[0] + kGap + widths[first] > max_width;
  std::string text;
  for (std::size_t r = 0; r < rows_.size(); ++r) {
    text += rows_[r][0];
    text.append(widths[0] - display_width(rows_[r][0]), ' ');
    std::size_t total = widths[0];
    for (std::size_t i = first; i < end; ++i) {
      text.append(is_wide ? kGap : kGap + widths[i] - display_width(rows_[r][i]), ' ');
      text += rows_[r][i];
      total += kGap + widths[i];
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    text += '\n';
    if (r > 0) continue;
    text.append(std::min(total, max_width), '-');
    text += '\n';
  }
  return text;
}

std::string TextTable::to_string(std::size_t max_width) const {
  const std::vector<std::size_t> widths = this->widths();
  std::string text;
  std::size_t first = 1;
  do {
    std::size_t end = first, total = widths[0];
    while (end < widths.size() && (end == first || total + kGap + widths[end] <= max_width)) {
      total += kGap + widths[end++];
    }
    if (first > 1) text += '\n';
    text += block(widths, first, end, max_width);
    first = end;
  } while (first < widths.size());
  return text;
}

}  // namespace weft
