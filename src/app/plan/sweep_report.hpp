// A sweep for a person, for a spreadsheet and for other tools.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>

#include "study/plan/sweep.hpp"

namespace weft {

// The fastest `top` rows, then why the others are infeasible: each kind of reason with its count and an example.
// Tables have at most so many columns.
std::string sweep_text_report(const Sweep& sweep, std::size_t top, std::size_t columns);

// One line per combination, in their order, under a header: the varied keys, then the figures.
void write_sweep_csv(std::ostream& out, const Sweep& sweep);

// {"combinations", "feasible", "seconds", "rows": fastest first, "infeasible": in order of combination}.
nlohmann::ordered_json sweep_json(const Sweep& sweep);

// "--tp 3: does not divide 128 heads" -> "--tp N: does not divide N heads".
std::string kind_of_reason(const std::string& reason);

}  // namespace weft
