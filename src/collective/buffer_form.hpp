// Programs for one buffer (in place) from programs for two, and the other way round. Files are written for one of the
// two, but a plan may need both: ZeRO gathers parameters where they lie, tensor parallelism into another value.
#pragma once

#include <string>

#include "collective/program.hpp"

namespace weft {

// The program with this form of buffers, and why it has none. In place, where the program would read an input that it
// has overwritten by then (the verifier says so), it works on a copy of the input. With two buffers, the input is
// copied to where the program works first, and a reduce_scatter's result to the output last.
struct BufferForm {
  Program program;
  std::string fault;  // in words; empty: the program is proven for every timing
};
BufferForm with_buffers(const Program& program, bool in_place);

}  // namespace weft
