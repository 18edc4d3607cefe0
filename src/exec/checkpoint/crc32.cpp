#include "exec/checkpoint/crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "eight bytes at a time are read as one number");

namespace weft {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;
constexpr std::size_t kAtOnce = 8;

using Tables = std::array<std::array<std::uint32_t, 256>, kAtOnce>;

// tables[k][b]: what byte b leaves when k more bytes have followed it (Kounavis and Berry 2005, "slicing by 8").
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < kAtOnce; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t last = tables[k - 1][byte];
      tables[k][byte] = (last >> 8) ^ tables[0][last & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t value = ~before;
  for (; bytes >= kAtOnce; bytes -= kAtOnce, at += kAtOnce) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, kAtOnce);
    word ^= value;
    value = 0;
    for (std::size_t k = 0; k < kAtOnce; ++k) value ^= kTables[kAtOnce - 1 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; bytes > 0; --bytes, ++at) value = (value >> 8) ^ kTables[0][(value ^ *at) & 0xFF];
  return ~value;
}

}  // namespace weft
