#include "comm/tcp/proof.hpp"

#include <gtest/gtest.h>

#include <set>

namespace weft::tcp {
namespace {

// Test cases 1, 2 and 6 of RFC 4231: keys shorter and longer than a block of the hash.
TEST(KeyedHash, IsThatOfTheStandard) {
  EXPECT_EQ(keyed_hash(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(keyed_hash("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(keyed_hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(RandomHex, HasTwoDigitsPerByteAndNeverRepeats) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string word = random_hex(32);
    EXPECT_EQ(word.size(), 64U);
    EXPECT_EQ(word.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_TRUE(seen.insert(word).second);
  }
}

TEST(SameHash, IsTheWholeHash) {
  EXPECT_TRUE(is_same_hash("abc", "abc"));
  EXPECT_FALSE(is_same_hash("abc", "abd"));
  EXPECT_FALSE(is_same_hash("abc", "ab"));
  EXPECT_FALSE(is_same_hash("", "a"));
}

}  // namespace
}  // namespace weft::tcp
