// Decides by prediction what travels encoded, gradients or weights, in which formats, and of which parameters.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

// What predictions may choose to encode.
enum class CompressionBudget : std::uint8_t { gradients, weights, all };

// One way for gradients and weights to travel. Parameters with fewer elements than compress.min_elements are those for
// which encoding and sending, one after the other, take longer than sending them as they are.
struct CompressionOption {
  GradientCompression compress;  // format none: gradients travel as they are
  Bytes sent;                    // what transfers of these carry in a step, over all rank classes
  double step_s = 0;             // predicted; 0 where no parameter is worth encoding
  bool is_allowed = true;        // its expected error is small enough
  CompressionFormat weights = CompressionFormat::none;  // none: they are gathered as they are

  bool encodes() const { return compress.is_on() || weights != CompressionFormat::none; }
  double error() const;  // the larger one of the formats' expected errors
};

struct CompressionChoice {
  double max_error = 0;
  std::string policy;                      // that steps were predicted with
  std::vector<CompressionOption> options;  // the first is to compress nothing
  std::size_t chosen = 0;
  CompressionBudget budget = CompressionBudget::gradients;

  const CompressionOption& plain() const { return options.front(); }
  const CompressionOption& best() const { return options[chosen]; }
};

// A choice must shorten the step by this share of it; less is within what predictions are off.
inline constexpr double kLeastGainOfCompression = 0.02;

// The layout's own choice of compression is ignored. Throws Error where nothing of the budget can be compressed in this
// layout.
CompressionChoice choose_compression(const Inputs& inputs, const Profile& profile, double max_error,
                                     const std::string& policy,
                                     CompressionBudget budget = CompressionBudget::gradients);

// "int8 for parameters from 65536 elements on: 1.20 s a step instead of 3.10 s (predicted with priority)", or why none.
std::string compression_choice_line(const CompressionChoice& choice);
// What --compress takes for an option: "gradients=int8@node,weights=int8".
std::string compression_flag_of(const CompressionOption& option);
// A table of all options: format, error, bytes, step.
std::string compression_options_text(const CompressionChoice& choice);

}  // namespace weft
