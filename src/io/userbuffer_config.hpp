// Reader of the file of Megatron-LM's --tp-comm-overlap-cfg: YAML in which Transformer Engine's products have a method
// and a number of SMs (graph/userbuffers.hpp).
#pragma once

#include <string>

#include "graph/userbuffers.hpp"

namespace weft {

// Products that the file does not name keep Transformer Engine's defaults, as there. Of a product's keys `method` and
// `num_sm` are read; the others that Transformer Engine knows are without effect. Throws Error with file and line.
UserbufferTable read_userbuffer_config(const std::string& text, const std::string& file);

}  // namespace weft
