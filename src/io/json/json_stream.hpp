// A pull tokenizer for JSON that is too large to hold: the caller walks objects and arrays and skips what it does not
// want. It accepts what profilers write, including NaN, Infinity and their shorter spellings as numbers. In skipped
// values only brackets and strings are checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/json/byte_source.hpp"
#include "io/json/json_number.hpp"

namespace weft {

class JsonStream {
 public:
  // The buffer grows where a token does not fit.
  explicit JsonStream(ByteSource& source, std::size_t buffer_bytes = std::size_t{1} << 18);

  // Returns the first byte of the next token without taking it; '\0' at the end of the input.
  char peek() {
    const char c = buffer_[position_];
    return c > ' ' && c <= '~' ? c : peek_behind_space();
  }
  // Takes '{' or '['; throws Error where something else comes.
  void open(char bracket);
  // Inside '{': the next key, valid until the stream's next token; nothing after the last, and '}' is taken.
  std::optional<std::string_view> next_key();
  // Inside '[': whether an element follows; after the last one ']' is taken.
  bool next_element();
  // Without quotes and escapes; valid until the stream's next token.
  std::string_view string();
  JsonNumber number();
  void skip();
  // Throws Error where anything but white space follows.
  void end();

  // Bytes before the next token (of the inflated text).
  std::int64_t offset() const { return before_buffer_ + static_cast<std::int64_t>(position_); }
  // "trace.json: at byte 17: ...".
  [[noreturn]] void reject(std::string_view what) const;

 private:
  char peek_behind_space();
  bool refill(std::size_t& keep_from);
  std::size_t scan_string(std::size_t at) const;
  std::string_view escaped_string(std::size_t begin, std::size_t at);
  void append_escape(std::size_t& begin, std::size_t& at);
  std::uint32_t hex4(std::size_t& begin, std::size_t& at);
  char byte_at(std::size_t& begin, std::size_t& at);
  void skip_string();
  void skip_scalar();
  std::string_view word();

  ByteSource& source_;
  std::vector<char> buffer_;
  std::size_t position_ = 0;  // of the next byte in the buffer
  std::size_t end_ = 0;       // of the bytes in the buffer; zeros follow
  std::int64_t before_buffer_ = 0;
  bool first_ = true;  // no member or element of the innermost open bracket was taken yet
  std::string scratch_, open_brackets_;
};

}  // namespace weft
