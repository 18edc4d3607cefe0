// Bytes in the wire format of protocol buffers, for the few messages that are written here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

class ProtoMessage {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
  }
  void bytes(std::uint32_t field, std::string_view value) {
    varint((std::uint64_t{field} << 3) | 2);
    varint(value.size());
    bytes_.append(value);
  }
  void message(std::uint32_t field, const ProtoMessage& value) { bytes(field, value.bytes_); }
  // Fields that are encoded already.
  void append_fields(std::string_view fields) { bytes_.append(fields); }
  const std::string& text() const { return bytes_; }
  // With its length before it, as streams of messages have it.
  std::string delimited() const {
    ProtoMessage stream;
    stream.varint(bytes_.size());
    return stream.bytes_ + bytes_;
  }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

}  // namespace weft
