// TACCL's sketches (taccl/examples/sketch in its repository), as our synthesis takes them.
#pragma once

#include <string>

#include "collective/synthesis/sketch.hpp"

namespace weft {

// Reads nnodes, intranode_sketch, internode_sketch, symmetry_offsets and hyperparameters.input_chunkup. The switches of
// a sketch are those of the topology that it is used with. `enforce_ordering` is read and not needed: both of our
// orders send first what is there first or has the longest way. Throws Error with file, key, value and what is allowed.
Sketch read_taccl_sketch(const std::string& text, const std::string& file_name);

}  // namespace weft
