// How much of a property test runs: all of it, but a quarter under sanitizers, which slow it tenfold. They look for
// wrong uses of memory, which more cases of the same kind seldom show.
#pragma once

#include <random>

namespace weft::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// For repetitions, and for counts that are expected of them.
constexpr int rounds(int count) {
  return kSanitized ? (count + 3) / 4 : count;
}

// For loops over many combinations: which of them to take. Drawn, so that no inner loop is met in step; the same ones
// in every run.
class Sample {
 public:
  bool takes() {
    if (!kSanitized) return true;
    const bool taken = next_ % 4 == 0;
    next_ = static_cast<unsigned>(random_() >> 8);
    return taken;
  }

 private:
  std::minstd_rand random_{1};
  unsigned next_ = 0;  // the first is always taken
};

}  // namespace weft::test
