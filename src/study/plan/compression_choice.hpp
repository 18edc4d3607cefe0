// Decides by prediction whether gradients travel encoded, in which format, and those of which parameters.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

// One way for gradients to travel. Parameters with fewer elements than compress.min_elements are those for which
// encoding and sending, one after the other, take longer than sending them as they are.
struct CompressionOption {
  GradientCompression compress;  // none: all as they are
  Bytes sent;                    // what transfers of gradients carry in a step, over all rank classes
  double step_s = 0;             // predicted; 0 where no parameter is worth encoding
  bool is_allowed = true;        // its expected error is small enough
};

struct CompressionChoice {
  double max_error = 0;
  std::string policy;                      // that steps were predicted with
  std::vector<CompressionOption> options;  // the first is to compress nothing
  std::size_t chosen = 0;

  const CompressionOption& plain() const { return options.front(); }
  const CompressionOption& best() const { return options[chosen]; }
};

// A choice must shorten the step by this share of it; less is within what predictions are off.
inline constexpr double kLeastGainOfCompression = 0.02;

// The layout's own choice of compression is ignored. Throws Error where gradients of this layout cannot be compressed.
CompressionChoice choose_compression(const Inputs& inputs, const Profile& profile, double max_error,
                                     const std::string& policy);

// "int8 for parameters from 65536 elements on: 1.20 s a step instead of 3.10 s (predicted with priority)", or why none.
std::string compression_choice_line(const CompressionChoice& choice);
// A table of all options: format, error, bytes, step.
std::string compression_options_text(const CompressionChoice& choice);

}  // namespace weft
