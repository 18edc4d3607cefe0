// Seeded choices, the same on every machine.
#pragma once

#include <cstdint>

namespace weft::testing {

// SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mixed(seed)) {}
  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
  // 0 .. count-1.
  std::int64_t below(std::int64_t count) {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(count));
  }
  bool chance(std::int64_t one_in) { return below(one_in) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace weft::testing
