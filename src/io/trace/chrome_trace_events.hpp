// Writes Chrome trace events as they come, since a trace of a million spans should never be in memory.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "base/ids.hpp"
#include "base/units.hpp"

namespace weft {

// As a JSON string; a byte that is no UTF-8 (names in foreign traces) becomes U+FFFD.
std::string json_quoted(std::string_view text);

// Writes events through a buffer to the stream, with the commas between them and the format of times.
class TraceEventStream {
 public:
  explicit TraceEventStream(std::ostream& out) : out_(out) {}

  TraceEventStream& text(std::string_view part) {
    buffer_ += part;
    return *this;
  }
  TraceEventStream& number(std::int64_t value);
  // Nanoseconds as microseconds with three decimals: exact.
  TraceEventStream& micros(Nanos t);
  // Opens an event; the caller goes on with its other fields, each begun with a comma, and closes it.
  TraceEventStream& event(char phase, std::int32_t pid);
  // Throws Error where the stream fails.
  void flush();

 private:
  std::ostream& out_;
  std::string buffer_;
  bool first_ = true;
};

}  // namespace weft
