#include "io/gzip_output.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <sstream>
#include <string>

#include "base/error.hpp"
#include "io/json/byte_source.hpp"

namespace weft {
namespace {

std::string packed(const std::string& text) {
  std::ostringstream out;
  write_gzip(out, [&](std::ostream& stream) {
    for (std::size_t i = 0; i < text.size(); i += 1000) stream << text.substr(i, 1000);
  });
  return out.str();
}

// By our own reader, which goes by zlib's inflate.
std::string unpacked(const std::string& bytes) {
  ByteSource source = ByteSource::of_bytes(bytes, "test");
  std::string text(1 << 12, '\0'), all;
  while (const std::size_t count = source.read(text.data(), text.size())) all += text.substr(0, count);
  EXPECT_TRUE(source.compressed());
  return all;
}

TEST(GzipOutput, WhatIsReadIsWhatWasWritten) {
  std::mt19937_64 random(1);
  for (const std::size_t size : {0U, 1U, 65535U, 65536U, 65537U, 1'000'000U}) {
    std::string text(size, ' ');
    for (char& c : text) c = static_cast<char>(random() % 256);
    EXPECT_EQ(unpacked(packed(text)), text) << size;
  }
}

TEST(GzipOutput, TheSameTextGivesTheSameBytesAndRepetitionFew) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += "{\"ph\":\"X\",\"pid\":0,\"tid\":1},\n";
  EXPECT_EQ(packed(text), packed(text));
  EXPECT_LT(packed(text).size(), text.size() / 50);
}

TEST(GzipOutput, AStreamThatFailsIsAnError) {
  std::ostringstream out;
  out.setstate(std::ios::badbit);
  EXPECT_THROW(write_gzip(out, [](std::ostream& stream) { stream << "text"; }), Error);
}

}  // namespace
}  // namespace weft
