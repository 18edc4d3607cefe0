// How much of a property test runs: all of it, or a sample of a quarter, the same one in every run. The sample is what
// the environment asks for with WEFT_TESTS=sample (`make test`), and what runs under sanitizers, which slow a test
// tenfold and look for wrong uses of memory, which more cases of the same kind seldom show. `make test-whole` runs all
// of it.
#pragma once

#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>

namespace weft::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

inline bool asks_for_sample() {
  const char* const wanted = std::getenv("WEFT_TESTS");
  const std::string text = wanted == nullptr ? "whole" : wanted;
  if (text != "whole" && text != "sample")
    throw std::invalid_argument("WEFT_TESTS: '" + text + "' is not whole or sample");
  return text == "sample";
}

inline bool sampled() {
  static const bool asked = asks_for_sample();
  return kSanitized || asked;
}

// For repetitions, and for counts that are expected of them.
inline int rounds(int count) {
  return sampled() ? (count + 3) / 4 : count;
}

// For loops over many combinations: which of them to take. Drawn, so that no inner loop is met in step; the same ones
// in every run.
class Sample {
 public:
  bool takes() {
    if (!sampled()) return true;
    const bool taken = next_ % 4 == 0;
    next_ = static_cast<unsigned>(random_() >> 8);
    return taken;
  }

 private:
  std::minstd_rand random_{1};
  unsigned next_ = 0;  // the first is always taken
};

}  // namespace weft::test
