// Random numbers without state: every (seed, place) has a number, the same on every machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// SplitMix64's step and finalizer (Steele, Lea, Flood 2014): a bijection of 64 bits in which every bit of x matters.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// FNV-1a.
constexpr std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace weft
