// `weft plan --against rows.csv`: how far predictions are from runs that were measured.
#pragma once

#include <iosfwd>

#include "app/flags.hpp"

namespace weft {

void declare_against_flags(Flags& flags);
int run_against_command(const Flags& flags, std::ostream& out, std::ostream& err);

}  // namespace weft
