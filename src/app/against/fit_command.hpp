// `weft calibrate --from rows.csv`: a profile fitted to runs that were measured elsewhere.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace weft {

// Whether the arguments of `weft calibrate` ask for it.
bool asks_for_fit(const std::vector<std::string>& arguments);
int run_fit_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace weft
