#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/aten/kernels_aten.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {

// Probabilities may lie where the logits do.
double cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities) {
  std::vector<double> losses(targets.size());
  in_ranges(logits.rows, row_grain(logits.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(logits, r);
      float* out = row(probabilities, r);
      const auto index = static_cast<std::size_t>(r);
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
  double loss = 0;
  for (const double of_token : losses) loss += of_token;
  return loss;
}

void cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, double scale, const Matrix& d_logits) {
  const auto factor = static_cast<float>(scale);
  in_ranges(d_logits.rows, row_grain(d_logits.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(probabilities, r);
      float* out = row(d_logits, r);
      const std::int64_t target = targets[static_cast<std::size_t>(r)];
      const float of_target = factor * (in[target] - 1.0F);
      for (std::int64_t c = 0; c < d_logits.columns; ++c) out[c] = factor * in[c];
      out[target] = of_target;
    }
  });
}

}  // namespace weft::aten
