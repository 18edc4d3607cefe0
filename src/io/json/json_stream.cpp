// The buffer ends in zeros, so inner loops need not check its end: a zero byte stops them, and only then they look.
#include "io/json/json_stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kPaddingBytes = 16;
constexpr std::size_t kMaxTokenBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxDepth = 4096;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// What numbers and the words true, false, null, NaN, Infinity are made of.
constexpr std::array<bool, 256> word_bytes() {
  std::array<bool, 256> result{};
  for (std::size_t c = '0'; c <= '9'; ++c) result[c] = true;
  for (std::size_t c = 'a'; c <= 'z'; ++c) result[c] = result[c - 'a' + 'A'] = true;
  for (const char c : {'+', '-', '.'}) result[static_cast<unsigned char>(c)] = true;
  return result;
}
constexpr std::array<bool, 256> kWordBytes = word_bytes();

bool is_word(char c) {
  return kWordBytes[static_cast<unsigned char>(c)];
}

// Marks every zero byte of `x` with its highest bit, and possibly bytes above the first one.
constexpr std::uint64_t zero_bytes(std::uint64_t x) {
  return (x - 0x0101010101010101ULL) & ~x & 0x8080808080808080ULL;
}

constexpr std::uint64_t repeated(char c) {
  return 0x0101010101010101ULL * static_cast<unsigned char>(c);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_not_finite(std::string_view text) {
  static constexpr std::array<std::string_view, 8> kWords = {"nan",      "NaN",      "inf", "Inf",
                                                             "Infinity", "infinity", "INF", "NAN"};
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  for (const std::string_view word : kWords) {
    if (text == word) return true;
  }
  return false;
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto add = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | (code >> 6));
    add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | (code >> 12));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | (code >> 18));
    add(0x80 | ((code >> 12) & 0x3F));
    add(0x80 | ((code >> 6) & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

}  // namespace

JsonStream::JsonStream(ByteSource& source, std::size_t buffer_bytes)
    : source_(source), buffer_(buffer_bytes + kPaddingBytes, '\0') {}

void JsonStream::reject(std::string_view what) const {
  fail("{}: at byte {}{}: {}", source_.name(), offset(), source_.compressed() ? " of the inflated text" : "", what);
}

// Moves the bytes from `keep_from` on to the front of the buffer and reads more behind them. Returns false where
// nothing is left to read. The buffer grows for a token that does not fit.
bool JsonStream::refill(std::size_t& keep_from) {
  if (keep_from > 0) {
    std::memmove(buffer_.data(), buffer_.data() + keep_from, end_ - keep_from);
    before_buffer_ += static_cast<std::int64_t>(keep_from);
    end_ -= keep_from;
    position_ -= keep_from;
    keep_from = 0;
  }
  if (end_ + kPaddingBytes == buffer_.size()) {
    if (buffer_.size() > kMaxTokenBytes) reject("a string or number of more than 256 MiB");
    buffer_.resize(2 * buffer_.size());
  }
  const std::size_t count = source_.read(buffer_.data() + end_, buffer_.size() - kPaddingBytes - end_);
  end_ += count;
  std::memset(buffer_.data() + end_, 0, kPaddingBytes);
  return count > 0;
}

char JsonStream::peek_behind_space() {
  constexpr std::uint64_t kEightSpaces = repeated(' ');
  for (;;) {
    const char* p = buffer_.data() + position_;
    while (is_space(*p)) {
      ++p;
      // Skips indentation, which profilers write. The padding of the buffer is not a space, so this ends there.
      std::uint64_t bytes = 0;
      for (std::memcpy(&bytes, p, 8); bytes == kEightSpaces; std::memcpy(&bytes, p, 8)) p += 8;
    }
    position_ = static_cast<std::size_t>(p - buffer_.data());
    if (*p != '\0' || position_ < end_) {
      if (*p == '\0') reject("a zero byte");
      // Skips a byte-order mark, which is not JSON but which some editors write.
      if (*p == '\xEF' && offset() == 0 && end_ >= 3 && p[1] == '\xBB' && p[2] == '\xBF') {
        position_ = 3;
        continue;
      }
      return *p;
    }
    std::size_t keep = position_;
    if (!refill(keep)) return '\0';
  }
}

void JsonStream::open(char bracket) {
  const char c = peek();
  if (c != bracket) reject(fmt::format("expected '{}'{}", bracket, c == '\0' ? ", but the file ends" : ""));
  ++position_;
  first_ = true;
}

std::optional<std::string_view> JsonStream::next_key() {
  char c = peek();
  if (c == '}') {
    ++position_;
    first_ = false;
    return std::nullopt;
  }
  if (!first_) {
    if (c != ',') reject(c == '\0' ? "the file ends inside an object" : "expected ',' or '}'");
    ++position_;
    c = peek();
  }
  if (c != '"') reject(c == '\0' ? "the file ends inside an object" : "expected a key in quotes");
  first_ = false;
  std::string_view key = string();
  // The colon nearly always follows in the buffer; where it does not, the key must outlive a refill.
  if (buffer_[position_] == ':') {
    ++position_;
    return key;
  }
  if (key.data() != scratch_.data()) {
    scratch_.assign(key);
    key = scratch_;
  }
  if (peek() != ':') reject("expected ':' after a key");
  ++position_;
  return key;
}

bool JsonStream::next_element() {
  const char c = peek();
  if (c == ']') {
    ++position_;
    first_ = false;
    return false;
  }
  if (!first_) {
    if (c != ',') reject(c == '\0' ? "the file ends inside an array" : "expected ',' or ']'");
    ++position_;
    if (peek() == '\0') reject("the file ends inside an array");
  }
  if (c == '\0') reject("the file ends inside an array");
  first_ = false;
  return true;
}

// The first quote, backslash or zero at or after `at`, eight bytes at a time.
std::size_t JsonStream::scan_string(std::size_t at) const {
  const char* p = buffer_.data() + at;
  for (; at + 8 <= end_ + kPaddingBytes; at += 8, p += 8) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, p, 8);
    if ((zero_bytes(bytes) | zero_bytes(bytes ^ repeated('"')) | zero_bytes(bytes ^ repeated('\\'))) != 0) break;
  }
  while (*p != '"' && *p != '\\' && *p != '\0') ++p;
  return static_cast<std::size_t>(p - buffer_.data());
}

std::string_view JsonStream::string() {
  if (peek() != '"') reject("expected a string");
  std::size_t begin = position_;  // kept through refills; of the quote
  std::size_t at = begin + 1;
  for (;;) {
    at = scan_string(at);
    const char c = buffer_[at];
    if (c == '"') {
      position_ = at + 1;
      return {buffer_.data() + begin + 1, at - begin - 1};
    }
    if (c == '\\') return escaped_string(begin, at);
    if (at < end_) {
      ++at;  // a zero byte of the text itself
      continue;
    }
    const std::size_t length = at - begin;
    if (!refill(begin)) reject("the file ends inside a string");
    at = begin + length;
  }
}

// Returns the byte at `at`, reading more where the buffer ends there.
char JsonStream::byte_at(std::size_t& begin, std::size_t& at) {
  while (at >= end_) {
    const std::size_t length = at - begin;
    if (!refill(begin)) reject("the file ends inside a string");
    at = begin + length;
  }
  return buffer_[at];
}

std::string_view JsonStream::escaped_string(std::size_t begin, std::size_t at) {
  scratch_.assign(buffer_.data() + begin + 1, at - begin - 1);
  for (;;) {
    const char c = byte_at(begin, at);
    if (c == '"') break;
    if (c == '\\') {
      append_escape(begin, at);
      continue;
    }
    const std::size_t stop = std::min(std::max(scan_string(at), at + 1), end_);
    scratch_.append(buffer_.data() + at, stop - at);
    at = stop;
  }
  position_ = at + 1;
  return scratch_;
}

void JsonStream::append_escape(std::size_t& begin, std::size_t& at) {
  ++at;
  const char c = byte_at(begin, at);
  ++at;
  static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t letter = kLetters.find(c); letter != std::string_view::npos) {
    scratch_ += kMeanings[letter];
    return;
  }
  if (c != 'u') reject(fmt::format("'\\{}' is no escape of JSON", c));
  std::uint32_t code = hex4(begin, at);
  if (code >= 0xD800 && code < 0xDC00 && byte_at(begin, at) == '\\') {
    std::size_t second = at + 1;
    const std::size_t distance = at - begin;
    const bool is_code = byte_at(begin, second) == 'u';
    at = begin + distance;
    if (is_code) {
      at += 2;
      const std::uint32_t low = hex4(begin, at);
      const bool pair = low >= 0xDC00 && low < 0xE000;
      if (!pair) append_utf8(scratch_, 0xFFFD);
      code = pair ? 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00) : low;
    }
  }
  // Half of a surrogate pair is no character.
  append_utf8(scratch_, code >= 0xD800 && code < 0xE000 ? 0xFFFD : code);
}

std::uint32_t JsonStream::hex4(std::size_t& begin, std::size_t& at) {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i, ++at) {
    const char c = byte_at(begin, at);
    std::uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<std::uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<std::uint32_t>(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = static_cast<std::uint32_t>(c - 'A') + 10;
    } else {
      reject("'\\u' wants four hexadecimal digits");
    }
    code = code * 16 + digit;
  }
  return code;
}

// A number, true, false, null: everything up to what cannot belong to it.
std::string_view JsonStream::word() {
  peek();
  std::size_t begin = position_, at = begin;
  for (;;) {
    while (is_word(buffer_[at])) ++at;
    if (at < end_) break;
    const std::size_t length = at - begin;
    const bool more = refill(begin);
    at = begin + length;
    if (!more) break;
  }
  const std::string_view text(buffer_.data() + begin, at - begin);
  position_ = at;
  return text;
}

JsonNumber JsonStream::number() {
  const char c = peek();
  if (!is_word(c)) reject("expected a number");
  const std::string_view text = word();
  const char last = text.back();
  // Only characters are checked; a malformed number gives no value later.
  if (!is_digit(last) && last != '.' && !is_not_finite(text)) {
    position_ -= text.size();
    reject("expected a number");
  }
  return {text};
}

void JsonStream::skip_string() {
  ++position_;
  for (;;) {
    const std::size_t at = scan_string(position_);
    const char c = buffer_[at];
    position_ = at + 1;
    if (c == '"') return;
    if (c == '\\') {
      if (position_ < end_) {
        ++position_;
        continue;
      }
    } else if (at < end_) {
      continue;  // a zero byte of the text itself
    } else {
      position_ = at;
    }
    // The buffer ends, perhaps between a backslash and what it escapes.
    const bool after_backslash = c == '\\';
    std::size_t keep = position_;
    if (!refill(keep)) reject("the file ends inside a string");
    if (after_backslash) ++position_;
  }
}

void JsonStream::skip_scalar() {
  const std::string_view text = word();
  const bool known = text == "true" || text == "false" || text == "null" || is_not_finite(text);
  if (known || (!text.empty() && (is_digit(text.front()) || text.front() == '-'))) return;
  position_ -= text.size();
  reject("expected a value");
}

void JsonStream::skip() {
  open_brackets_.clear();
  first_ = false;
  do {
    const char c = peek();
    switch (c) {
      case '"':
        skip_string();
        break;
      case '{':
      case '[':
        if (open_brackets_.size() == kMaxDepth) reject("more than 4096 brackets inside each other");
        open_brackets_ += c == '{' ? '}' : ']';
        ++position_;
        break;
      case '}':
      case ']':
        if (open_brackets_.empty() || open_brackets_.back() != c) reject(fmt::format("unexpected '{}'", c));
        open_brackets_.pop_back();
        ++position_;
        break;
      case ',':
      case ':':
        if (open_brackets_.empty()) reject("expected a value");
        ++position_;
        break;
      case '\0':
        reject("the file ends inside a value");
      default:
        skip_scalar();
    }
  } while (!open_brackets_.empty());
}

void JsonStream::end() {
  if (peek() != '\0') reject("something follows the end of the JSON value");
}

}  // namespace weft
