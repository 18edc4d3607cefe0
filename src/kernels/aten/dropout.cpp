#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/dropout_hash.hpp"

namespace weft::aten {

void AtenKernels::dropout(const Matrix& x, const DropoutDraw& draw, const Matrix& residual, KeptElements kept,
                          const Matrix& y) {
  const DropoutRule rule(draw.rate, draw.key);
  in_ranges(x.rows, row_grain(x.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const RowDropout drops(rule, draw.rows[r]);
      const float* in = row(x, r);
      const float* added = residual.empty() ? nullptr : row(residual, r);
      float* out = row(y, r);
      std::uint8_t* bytes = kept.data() + r * x.columns;
      for (std::int64_t c = 0; c < x.columns; ++c) bytes[c] = drops.keeps(c) ? 1 : 0;
      if (added == nullptr) {
        for (std::int64_t c = 0; c < x.columns; ++c) out[c] = bytes[c] != 0 ? in[c] * drops.scale() : 0.0F;
      } else {
        for (std::int64_t c = 0; c < x.columns; ++c)
          out[c] = bytes[c] != 0 ? in[c] * drops.scale() + added[c] : added[c];
      }
    }
  });
}

void AtenKernels::dropout_input_grad(const Matrix& dy, double rate, KeptElements kept, const Matrix& dx) {
  const auto scale = static_cast<float>(1 / (1 - rate));
  in_ranges(dy.rows, row_grain(dy.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* in = row(dy, r);
      float* out = row(dx, r);
      const std::uint8_t* bytes = kept.data() + r * dy.columns;
      for (std::int64_t c = 0; c < dy.columns; ++c) out[c] = bytes[c] != 0 ? in[c] * scale : 0.0F;
    }
  });
}

}  // namespace weft::aten
