#include "io/json/json_stream.hpp"

#include <gtest/gtest.h>
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"

namespace weft {
namespace {

using nlohmann::json;

// The whole document through the tokenizer: what a generic parser would have made of it.
json walk(JsonStream& stream) {
  const char c = stream.peek();
  if (c == '{') {
    json object = json::object();
    stream.open('{');
    while (const auto key = stream.next_key()) {
      const std::string name(*key);
      object[name] = walk(stream);
    }
    return object;
  }
  if (c == '[') {
    json array = json::array();
    stream.open('[');
    while (stream.next_element()) array.push_back(walk(stream));
    return array;
  }
  if (c == '"') return std::string(stream.string());
  return json::parse(std::string(stream.number().text));
}

std::string random_text(std::mt19937& random) {
  static const std::vector<std::string> pieces = {
      "a",  "kernel<float, 4>", "\"", "\\", "\n", "\t", "é",    "\xF0\x9F\x98\x80",
      "/u", "        ",         "{",  "]",  ":",  ",",  "\x01", "nccl"};
  std::string text;
  for (auto left = random() % 6; left > 0; --left) text += pieces[random() % pieces.size()];
  return text;
}

json random_document(std::mt19937& random, int depth) {
  const auto kind = random() % (depth > 0 ? 5 : 3);
  if (kind == 0) return static_cast<std::int64_t>(random()) - (1LL << 31);
  if (kind == 1) return static_cast<double>(random() % 100000) / 1000.0;
  if (kind == 2) return random_text(random);
  json result = kind == 3 ? json::array() : json::object();
  for (auto left = random() % 5; left > 0; --left) {
    json value = random_document(random, depth - 1);
    if (kind == 3) {
      result.push_back(std::move(value));
    } else {
      result[random_text(random)] = std::move(value);
    }
  }
  return result;
}

json walked(const std::string& text, std::size_t buffer) {
  ByteSource source = ByteSource::of_bytes(text, "t.json");
  JsonStream stream(source, buffer);
  json result = walk(stream);
  stream.end();
  return result;
}

TEST(JsonStream, ReadsWhatAGenericParserReadsWhateverTheBuffer) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const json document = random_document(random, 4);
    for (const bool ascii : {false, true}) {
      const std::string text = document.dump(round % 3 == 0 ? 9 : -1, ' ', ascii);
      for (const std::size_t buffer : {std::size_t{1}, std::size_t{3}, std::size_t{17}, std::size_t{1} << 18}) {
        ASSERT_EQ(walked(text, buffer), document) << text << " with " << buffer;
      }
    }
  }
}

TEST(JsonStream, SkipsExactlyOneValue) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const std::string text = "[" + random_document(random, 4).dump(round % 2 == 0 ? 2 : -1) + ", 17]";
    for (const std::size_t buffer : {std::size_t{1}, std::size_t{5}, std::size_t{4096}}) {
      ByteSource source = ByteSource::of_bytes(text, "t.json");
      JsonStream stream(source, buffer);
      stream.open('[');
      ASSERT_TRUE(stream.next_element());
      stream.skip();
      ASSERT_TRUE(stream.next_element()) << text;
      EXPECT_EQ(stream.number().scaled(0), 17);
      EXPECT_FALSE(stream.next_element());
      stream.end();
    }
  }
}

TEST(JsonNumber, IsExactToTheDigit) {
  const auto nanos = [](const char* text) { return JsonNumber{text}.scaled(3); };
  EXPECT_EQ(nanos("4458676522690.655"), 4458676522690655);
  EXPECT_EQ(nanos("1682725898236567"), 1682725898236567000);
  EXPECT_EQ(nanos("68.0"), 68000);
  EXPECT_EQ(nanos("-0.001"), -1);
  EXPECT_EQ(nanos("0.0004"), 0);
  EXPECT_EQ(nanos("0.0005"), 1);
  EXPECT_EQ(nanos("-0.0005"), -1);
  EXPECT_EQ(nanos("1.68e3"), 1680000);
  EXPECT_EQ(nanos("12345678e-6"), 12346);  // 12.345678
  EXPECT_EQ(nanos("1682725898236567.1239999"), 1682725898236567124);
  EXPECT_EQ(nanos("0"), 0);
  EXPECT_EQ(nanos("00012"), 12000);
  EXPECT_EQ(JsonNumber{"2305843009213693952"}.scaled(0), std::int64_t{1} << 61);
  for (const char* text :
       {"NaN", "Infinity", "-inf", "1e30", "9999999999999999999", "2305843009213693953", "", "-", "1e", "1.2.3", "."}) {
    EXPECT_EQ(JsonNumber{text}.scaled(0), std::nullopt) << text;
  }
  EXPECT_TRUE(JsonNumber{"68.0"}.has_fraction());
  EXPECT_TRUE(JsonNumber{"1E3"}.has_fraction());
  EXPECT_FALSE(JsonNumber{"-68"}.has_fraction());
}

TEST(JsonStream, DecodesEscapes) {
  // Half of a surrogate pair becomes the replacement character.
  EXPECT_EQ(walked(R"("\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\")", 3), "é\xF0\x9F\x98\x80/\b\f\n\r\t\"\\");
  EXPECT_EQ(walked(R"("\ud83dx")", 2), "\xEF\xBF\xBDx");
  EXPECT_EQ(walked(R"("\ude00\ud83d\u0041")", 2),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
}

std::string message_of(const std::string& text) {
  try {
    ByteSource source = ByteSource::of_bytes(text, "t.json");
    JsonStream stream(source, 4);
    stream.skip();
    stream.end();
    ByteSource again = ByteSource::of_bytes(text, "t.json");
    JsonStream strict(again, 4);
    walk(strict);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JsonStream, NamesThePlaceOfAMistake) {
  EXPECT_EQ(message_of("[1, 2"), "t.json: at byte 5: the file ends inside a value");
  EXPECT_EQ(message_of("{\"a\": \"b"), "t.json: at byte 8: the file ends inside a string");
  EXPECT_EQ(message_of("[1}"), "t.json: at byte 2: unexpected '}'");
  EXPECT_EQ(message_of("[1 2]"), "t.json: at byte 3: expected ',' or ']'");
  EXPECT_EQ(message_of("{\"a\" 1}"), "t.json: at byte 5: expected ':' after a key");
  EXPECT_EQ(message_of("{1: 2}"), "t.json: at byte 1: expected a key in quotes");
  EXPECT_EQ(message_of("1 2"), "t.json: at byte 2: something follows the end of the JSON value");
  EXPECT_EQ(message_of("maybe"), "t.json: at byte 0: expected a value");
  EXPECT_EQ(message_of("\"\\x\""), "t.json: at byte 0: '\\x' is no escape of JSON");
  EXPECT_EQ(message_of(std::string(5000, '[')), "t.json: at byte 4096: more than 4096 brackets inside each other");
}

TEST(JsonStream, TakesNumbersThatAreNone) {
  ByteSource source = ByteSource::of_bytes("[NaN, -inf, Infinity, nan]", "t.json");
  JsonStream stream(source);
  stream.open('[');
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(stream.next_element());
    EXPECT_EQ(stream.number().scaled(0), std::nullopt);
  }
}

std::string gzip(const std::string& text) {
  z_stream zlib{};
  EXPECT_EQ(deflateInit2(&zlib, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<unsigned char> in(text.begin(), text.end()), out(text.size() + 1000);
  zlib.next_in = in.data();
  zlib.avail_in = static_cast<uInt>(in.size());
  zlib.next_out = out.data();
  zlib.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&zlib, Z_FINISH), Z_STREAM_END);
  std::string result(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(zlib.total_out));
  deflateEnd(&zlib);
  return result;
}

std::string all_of(const std::string& bytes) {
  ByteSource source = ByteSource::of_bytes(bytes, "t.gz");
  std::string text(1 << 20, '\0');
  std::size_t size = 0;
  while (const std::size_t count = source.read(text.data() + size, 777)) size += count;
  text.resize(size);
  return text;
}

TEST(ByteSource, InflatesMembersOneAfterAnother) {
  std::mt19937 random(9);
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += static_cast<char>('a' + random() % 20);
  EXPECT_EQ(all_of(gzip(text)), text);
  EXPECT_EQ(all_of(gzip(text.substr(0, 1000)) + gzip("") + gzip(text.substr(1000))), text);
  EXPECT_EQ(all_of(gzip(text) + std::string(512, '\0')), text);  // padding, as tar leaves it
  EXPECT_EQ(all_of(text), text);
  EXPECT_EQ(all_of(""), "");
}

TEST(ByteSource, SaysThatCompressedDataIsTruncatedOrDamaged) {
  std::mt19937 random(10);
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>('a' + random() % 20);
  const std::string bytes = gzip(text);
  for (const std::size_t size : {std::size_t{2}, std::size_t{9}, bytes.size() / 2, bytes.size() - 1}) {
    try {
      all_of(bytes.substr(0, size));
      ADD_FAILURE() << size;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), "t.gz: the compressed data ends too early, after " + std::to_string(size) +
                                               " bytes: the file is truncated");
    }
  }
  std::string damaged = bytes;
  damaged[damaged.size() - 6] ^= 1;  // of the checksum
  EXPECT_THROW(all_of(damaged), Error);
}

}  // namespace
}  // namespace weft
