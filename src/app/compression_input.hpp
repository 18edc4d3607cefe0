// What --compress says of a layout.
#pragma once

#include <optional>

#include "app/flags.hpp"
#include "graph/layout.hpp"

namespace weft {

struct EncodedTensors {
  GradientCompression gradients;  // its smallest size is that of weights too
  CompressionFormat weights = CompressionFormat::none;
};

void declare_compression_flags(Flags& flags, const char* group);
// Throws Error naming the value and what is allowed. `auto`, which commands with --max-error take, gives none here.
EncodedTensors read_compression(const Flags& flags);
// Returns the largest error that is allowed where --compress auto leaves the choice to predictions.
std::optional<double> error_of_chosen_compression(const Flags& flags);

}  // namespace weft
