// 128 random bits that tell one run of the program from every other: two runs of the same training have different ones.
//
// (Which *training* a checkpoint is of, so that a run may go on from it, is said by run_identity.hpp.)
#pragma once

#include <string>
#include <string_view>

namespace weft {

// 32 hexadecimal digits. It is drawn by rank 0 and told to the others. Nothing that is computed depends on it.
std::string draw_run_id();
bool is_run_id(std::string_view text);

}  // namespace weft
