// Published values of the two hashes: the same numbers on every machine.
#include "base/mix.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(MixBits, IsSplitMix64) {
  // The first outputs of Vigna's splitmix64.c from state 1234567; its state grows by the golden ratio.
  EXPECT_EQ(mix_bits(1234567), 6457827717110365317U);
  EXPECT_EQ(mix_bits(1234567 + 0x9e3779b97f4a7c15U), 3203168211198807973U);
  EXPECT_EQ(mix_bits(1234567 + 2 * 0x9e3779b97f4a7c15U), 9817491932198370423U);
}

TEST(HashText, IsFnv1a) {
  // From the authors' test vectors (Fowler, Noll, Vo), 64 bits.
  EXPECT_EQ(hash_text(""), 0xcbf29ce484222325U);
  EXPECT_EQ(hash_text("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(hash_text("foobar"), 0x85944171f73967e8U);
}

}  // namespace
}  // namespace weft
