#include "io/csv.hpp"

#include <set>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r') {
      cells.back() += c;
    }
  }
  return cells;
}

}  // namespace

std::string CsvRow::text(const std::string& column) const {
  const auto found = cells.find(column);
  return found == cells.end() ? "" : found->second;
}

std::vector<CsvRow> read_csv(const std::string& text, const std::string& file_name) {
  std::vector<std::string> header;
  std::vector<CsvRow> rows;
  std::int64_t number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    if (line.empty() || line == "\r" || line.front() == '#') continue;
    const std::vector<std::string> cells = cells_of(line);
    if (header.empty()) {
      header = cells;
      std::set<std::string> names;
      for (const std::string& name : header) {
        if (!names.insert(name).second) fail("{}: line {}: column '{}' stands there twice", file_name, number, name);
      }
      continue;
    }
    if (cells.size() != header.size()) {
      fail("{}: line {}: has {} cells, and the header {}", file_name, number, cells.size(), header.size());
    }
    CsvRow row{number, {}};
    for (std::size_t i = 0; i < header.size(); ++i) row.cells[header[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace weft
