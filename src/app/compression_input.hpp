// What --compress says of a layout.
#pragma once

#include <optional>
#include <string>

#include "app/flags.hpp"
#include "graph/layout.hpp"
#include "study/plan/compression_choice.hpp"

namespace weft {

struct EncodedTensors {
  GradientCompression gradients;  // its smallest size is that of weights too
  CompressionFormat weights = CompressionFormat::none;
};

void declare_compression_flags(Flags& flags, const char* group);
// Throws Error naming the value and what is allowed. What leaves the choice to predictions gives none here.
EncodedTensors read_compression(const Flags& flags);

// What --compress leaves to predictions.
struct CompressionWish {
  std::string flag;  // as it was given: "auto", "all"
  CompressionBudget budget = CompressionBudget::gradients;
  double max_error = 0;
};
// Returns nothing where --compress names formats, or is not given. Commands without --max-error take no such wish.
std::optional<CompressionWish> read_compression_wish(const Flags& flags);

}  // namespace weft
