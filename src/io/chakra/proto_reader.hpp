// Reads bytes in the wire format of protocol buffers, field by field and without a copy. Whatever the bytes hold, it
// ends: a field lies inside its message, or Error says where it does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

enum class WireType : std::uint8_t { number = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct ProtoField {
  std::uint32_t number = 0;
  WireType type = WireType::number;
  std::uint64_t value = 0;  // of numbers of every width
  std::string_view bytes;   // of texts, messages and packed lists
  std::string_view whole;   // the field as it stands in the message, with its key
};

class ProtoReader {
 public:
  // `what` opens messages of errors ("step.0.et: node 7").
  ProtoReader(std::string_view message, std::string what) : rest_(message), what_(std::move(what)) {}

  // Returns nothing at the end of the message. Throws Error where it ends inside a field, or the type is none.
  std::optional<ProtoField> next();
  // Reads a number of the base-128 encoding from the front of the message.
  std::uint64_t varint();
  bool at_end() const { return rest_.empty(); }
  std::size_t left() const { return rest_.size(); }

 private:
  std::string_view take(std::uint64_t size);

  std::string_view rest_;
  std::string what_;
};

}  // namespace weft
