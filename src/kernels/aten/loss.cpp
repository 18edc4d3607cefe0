#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {
namespace {

float sum_of_exponentials(const float* values, std::int64_t count, float shift) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += exponential(values[i] - shift);
  return sum;
}

// Combines the parts of one token.
struct Joined {
  float largest = 0;
  double sum = 0, target = 0;
};
Joined join(std::span<const LossPart> parts, std::int64_t token) {
  Joined all{floats(parts.front().largest)[token]};
  for (const LossPart& part : parts) all.largest = std::max(all.largest, floats(part.largest)[token]);
  for (const LossPart& part : parts) {
    const float factor = exponential(floats(part.largest)[token] - all.largest);
    all.sum += static_cast<double>(floats(part.sum)[token]) * static_cast<double>(factor);
    all.target += static_cast<double>(floats(part.target)[token]);
  }
  return all;
}

}  // namespace

// Probabilities may lie where the logits do.
void AtenKernels::cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                                double& loss) {
  thread_local std::vector<double> kept;  // belongs to the calling thread; the others use it through the span
  kept.resize(targets.size());
  const std::span<double> losses = kept;
  in_ranges(logits.rows, row_grain(logits.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(logits, r);
      float* out = row(probabilities, r);
      const std::size_t index = r;
      const float highest = largest(in, vocab);
      const float of_target = in[targets[index]];
      const float sum = exponentiate(in, vocab, highest, out);
      losses[index] =
          std::log(static_cast<double>(sum)) + static_cast<double>(highest) - static_cast<double>(of_target);
      const float inverse = 1.0F / sum;
      for (std::int64_t c = 0; c < vocab; ++c) out[c] *= inverse;
      std::fill_n(out + vocab, logits.columns - vocab, 0.0F);
    }
  });
  double sum = 0;
  for (const double of_token : losses) sum += of_token;
  loss = sum;
}

void AtenKernels::cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  in_ranges(logits.rows, row_grain(part.count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(logits, r);
      // Logits that are all -inf count as none: subtracting them from themselves would give NaN where another part may
      // be finite.
      const float highest = part.count == 0 ? kLowest : std::max(largest(in, part.count), kLowest);
      const std::int64_t target = targets[r] - part.first;
      floats(out.largest)[r] = highest;
      floats(out.sum)[r] = sum_of_exponentials(in, part.count, highest);
      floats(out.target)[r] = target >= 0 && target < part.count ? in[target] : 0.0F;
    }
  });
}

// One thread computes the loss from the parts alone, so that its bits depend on nothing else.
void AtenKernels::cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                                         const Matrix& probabilities, double& loss) {
  double sum = 0;
  for (std::int64_t r = 0; r < logits.rows; ++r) {
    const Joined all = join(parts, r);
    sum += std::log(all.sum) + static_cast<double>(all.largest) - all.target;
  }
  loss = sum;
  in_ranges(logits.rows, row_grain(logits.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const Joined all = join(parts, r);
      const float* in = row(logits, r);
      float* out = row(probabilities, r);
      const auto inverse = static_cast<float>(1 / all.sum);
      for (std::int64_t c = 0; c < part.count; ++c) out[c] = exponential(in[c] - all.largest) * inverse;
      std::fill_n(out + part.count, logits.columns - part.count, 0.0F);
    }
  });
}

void AtenKernels::cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first,
                                           double scale, const Matrix& d_logits) {
  const auto factor = static_cast<float>(scale);
  in_ranges(d_logits.rows, row_grain(d_logits.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(probabilities, r);
      float* out = row(d_logits, r);
      const std::int64_t target = targets[r] - first;
      const bool is_here = target >= 0 && target < d_logits.columns;
      const float of_target = is_here ? factor * (in[target] - 1.0F) : 0.0F;  // before it is overwritten in place
      for (std::int64_t c = 0; c < d_logits.columns; ++c) out[c] = factor * in[c];
      if (is_here) out[target] = of_target;
    }
  });
}

}  // namespace weft::aten
