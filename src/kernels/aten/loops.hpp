// Rows as floats, loops over several threads, scratch memory, sums over rows: what the plain loops share.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "kernels/matrix.hpp"

namespace weft::aten {

inline float* row(const Matrix& x, std::int64_t index) {
  return reinterpret_cast<float*>(x.data.address + index * x.row_stride.value);
}
inline float* floats(const Vector& x) {
  return reinterpret_cast<float*>(x.data.address);
}

// How many threads the loops of the calling thread take.
void use_loop_threads(int threads);

// Calls body(begin, end) for ranges that cover 0..count, each but the last a multiple of `grain` long; on the calling
// thread alone where one suffices. A kernel's result must not depend on the ranges in any other way.
using RangeBody = std::function<void(std::int64_t, std::int64_t)>;
void call_in_ranges(std::int64_t count, std::int64_t grain, const RangeBody& body);
// Passes the body by reference, because a std::function of its own would allocate memory for its captures at every
// call.
template <class Body>
void in_ranges(std::int64_t count, std::int64_t grain, const Body& body) {
  call_in_ranges(count, grain, std::cref(body));
}

// The fewest rows for one thread; fewer are not worth waking another.
inline std::int64_t row_grain(std::int64_t columns) {
  return columns >= 16384 ? 1 : 16384 / (columns + 1) + 1;
}

// Memory of the calling thread that the next kernel reuses. `slot` distinguishes what one kernel needs at once.
inline constexpr int kScratchSlots = 8;
std::span<float> scratch(int slot, std::int64_t size);

// Sums over rows are first taken in blocks of this many: every number of threads gives the same bits, and rounding
// errors grow with the number of blocks rather than of rows.
inline constexpr std::int64_t kSumBlock = 64;
// sums += (or =, by `into`) the column sums of x.
void sum_rows(const Matrix& x, float* sums, Into into);

}  // namespace weft::aten
