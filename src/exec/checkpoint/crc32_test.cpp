#include "exec/checkpoint/crc32.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weft {
namespace {

std::uint32_t of(const std::string& text) {
  return crc32(text.data(), text.size());
}

// The check value of the catalogue of CRCs, and values that Python's zlib.crc32 gives.
TEST(Crc32, AgreesWithZlib) {
  EXPECT_EQ(of("123456789"), 0xCBF43926U);
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("a"), 0xE8B7BE43U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x190A55ADU);
  EXPECT_EQ(of(std::string(32, '\xFF')), 0xFF6CAB0BU);
  std::string long_text;
  for (int i = 0; i < 100'003; ++i) long_text += static_cast<char>(i % 251);
  EXPECT_EQ(of(long_text), 0xBCE3A8C1U);
}

// Bit by bit, as the polynomial division is defined.
std::uint32_t slow_crc32(const std::string& text) {
  std::uint32_t value = 0xFFFFFFFF;
  for (const char c : text) {
    value ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? (value >> 1) ^ 0xEDB88320 : value >> 1;
  }
  return ~value;
}

TEST(Crc32, IsTheSameInPiecesOfAnyLengthAndAlignment) {
  std::string text;
  for (int i = 0; i < 64; ++i) text += static_cast<char>(i * 37);
  for (std::size_t first = 0; first <= 17; ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      const std::uint32_t whole = slow_crc32(text.substr(first));
      const std::uint32_t begin = crc32(text.data() + first, second - first);
      EXPECT_EQ(crc32(text.data() + second, text.size() - second, begin), whole) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace weft
