// Reads tables of measurements: comma-separated lines, the first of which names the columns.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace weft {

struct CsvRow {
  std::int64_t line = 0;                     // of the file, the header's is 1
  std::map<std::string, std::string> cells;  // by column
  // Returns the text of a cell, "" where the row has no such column.
  std::string text(const std::string& column) const;
};

// Cells may be quoted; a line end inside quotes is not understood. Empty lines and those that begin with # are skipped.
// Throws Error naming the file and the line where a row has more or fewer cells than the header, or a column's name
// appears twice.
std::vector<CsvRow> read_csv(const std::string& text, const std::string& file_name);

}  // namespace weft
