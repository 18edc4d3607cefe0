#include "timeline/trace/hta_times.hpp"

#include <cmath>

namespace weft {
namespace {

constexpr std::int64_t kMicro = 1000;

// A time stamp as HTA has it: a double of microseconds. Where the stamp is large the fraction has few bits, and the
// rounding below depends on them.
double micros(Nanos t) {
  const std::int64_t whole = t.value / kMicro, rest = t.value % kMicro;
  return static_cast<double>(whole) + static_cast<double>(rest) / 1000.0;
}

bool rounds(const DeviceTrace& trace) {
  return trace.fractional && trace.source == TraceSource::kineto;
}

}  // namespace

// Rounds starts up and ends down, because neighbours may overlap by a fraction of a microsecond. An activity between
// two microseconds then ends before it starts.
Nanos hta_start(const DeviceTrace& trace, Nanos start) {
  if (!rounds(trace)) return start;
  return {static_cast<std::int64_t>(std::ceil(micros(start))) * kMicro};
}

Nanos hta_end(const DeviceTrace& trace, Nanos start, Nanos end) {
  if (!rounds(trace)) return end;
  return {static_cast<std::int64_t>(std::floor(micros(start) + micros(end - start))) * kMicro};
}

}  // namespace weft
