#include "io/chakra/proto_reader.hpp"

#include "base/error.hpp"

namespace weft {

std::uint64_t ProtoReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 70; shift += 7) {
    if (rest_.empty()) fail("{}: ends inside a number", what_);
    const auto byte = static_cast<std::uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    if (shift < 64) value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  fail("{}: a number of more than 10 bytes, at most 10 are allowed", what_);
}

std::string_view ProtoReader::take(std::uint64_t size) {
  if (size > rest_.size()) fail("{}: a field of {} bytes, {} are left", what_, size, rest_.size());
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty()) return std::nullopt;
  const char* const begin = rest_.data();
  const std::uint64_t key = varint();
  ProtoField field;
  field.number = static_cast<std::uint32_t>(key >> 3);
  if (key >> 3 == 0 || key >> 3 >= (1U << 29)) fail("{}: field {}, 1 to 2^29 - 1 are allowed", what_, key >> 3);
  field.type = static_cast<WireType>(key & 7);
  switch (field.type) {
    case WireType::number:
      field.value = varint();
      break;
    case WireType::bytes:
      field.bytes = take(varint());
      break;
    case WireType::fixed64:
    case WireType::fixed32: {
      const std::string_view little_endian = take(field.type == WireType::fixed64 ? 8 : 4);
      for (std::size_t i = little_endian.size(); i-- > 0;) {
        field.value = field.value << 8 | static_cast<std::uint8_t>(little_endian[i]);
      }
      break;
    }
    default:
      fail("{}: field {} has wire type {}, allowed are 0, 1, 2 and 5", what_, field.number, key & 7);
  }
  field.whole = std::string_view(begin, static_cast<std::size_t>(rest_.data() - begin));
  return field;
}

}  // namespace weft
