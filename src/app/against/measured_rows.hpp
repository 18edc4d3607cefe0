// Rows of a user's table of measured runs as flags of `weft plan` (docs/against.md has the columns).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "cost/measured_links.hpp"
#include "io/csv.hpp"

namespace weft {

struct MeasuredRow {
  std::int64_t line = 0;  // of the file
  Flags flags;            // that describe it
  std::string policy;
  std::optional<double> step_s;        // measured
  std::optional<double> reserved_gib;  // by the allocator of rank 0
  bool out_of_memory = false;
  std::vector<MeasuredCollective> links;  // of the job itself, with --links columns
};

// Rows whose cells are as --where says, each with the flags of the command line beside its own; a flag that was typed
// wins over a column. Throws Error naming file, line, column and value.
std::vector<MeasuredRow> read_measured_runs(const Flags& flags, const std::string& file);

}  // namespace weft
