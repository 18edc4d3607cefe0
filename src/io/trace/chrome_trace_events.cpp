// Hand-written JSON: the events are too many for a document tree.
#include "io/trace/chrome_trace_events.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::size_t kFlushBytes = 1 << 16;

// Length of the well-formed UTF-8 sequence at the front of `text`, 0 where there is none (RFC 3629, table 3-7 of
// Unicode: no overlong forms, no surrogates).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  const bool bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                   (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
  return bad ? 0 : length;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string result = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      result += "\xEF\xBF\xBD";
    } else if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result + '"';
}

TraceEventStream& TraceEventStream::number(std::int64_t value) {
  const fmt::format_int digits(value);
  return text({digits.data(), digits.size()});
}

TraceEventStream& TraceEventStream::micros(Nanos t) {
  const std::int64_t magnitude = t.value < 0 ? -t.value : t.value;
  if (t.value < 0) buffer_ += '-';
  number(magnitude / 1000);
  const auto fraction = static_cast<int>(magnitude % 1000);
  const char digits[] = {'.', static_cast<char>('0' + fraction / 100), static_cast<char>('0' + fraction / 10 % 10),
                         static_cast<char>('0' + fraction % 10)};
  return text({digits, sizeof digits});
}

TraceEventStream& TraceEventStream::event(char phase, std::int32_t pid) {
  if (buffer_.size() > kFlushBytes) flush();
  buffer_ += first_ ? "\n{\"ph\":\"" : ",\n{\"ph\":\"";
  first_ = false;
  buffer_ += phase;
  return text("\",\"pid\":").number(pid);
}

void TraceEventStream::flush() {
  out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  buffer_.clear();
  if (!out_) fail("chrome trace: writing failed");
}

}  // namespace weft
