#include "kernels/aten/rotary.hpp"

#include <cmath>
#include <vector>

#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

struct Angles {
  double base = 0;
  std::int64_t head_size = 0, positions = 0;
  std::vector<float> values;
};

void compute(Angles& angles) {
  const std::int64_t planes = angles.head_size / 2;
  angles.values.resize(angles.positions * angles.head_size);
  for (std::int64_t position = 0; position < angles.positions; ++position) {
    float* cosines = angles.values.data() + position * angles.head_size;
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      const double exponent = 2 * static_cast<double>(plane) / static_cast<double>(angles.head_size);
      const double angle = static_cast<double>(position) / std::pow(angles.base, exponent);
      cosines[plane] = static_cast<float>(std::cos(angle));
      cosines[planes + plane] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace

std::span<const float> rotary_angles(double base, std::int64_t head_size, std::int64_t positions) {
  thread_local Angles kept;
  if (kept.base != base || kept.head_size != head_size || kept.positions < positions) {
    kept.base = base;
    kept.head_size = head_size;
    kept.positions = positions;
    compute(kept);
  }
  return kept.values;
}

void rotate(const Matrix& from, const Matrix& to, std::span<const float> angles, std::int64_t first,
            Rotation rotation) {
  const std::int64_t planes = from.columns / 2;
  const float sign = rotation == Rotation::forward ? 1.0F : -1.0F;
  for (std::int64_t r = 0; r < from.rows; ++r) {
    const float* in = row(from, r);
    float* out = row(to, r);
    const float* cosines = angles.data() + (first + r) * from.columns;
    const float* sines = cosines + planes;
    for (std::int64_t plane = 0; plane < planes; ++plane) {
      const float a = in[plane], b = in[planes + plane], sine = sign * sines[plane];
      out[plane] = a * cosines[plane] - b * sine;
      out[planes + plane] = b * cosines[plane] + a * sine;
    }
  }
}

}  // namespace weft::aten
