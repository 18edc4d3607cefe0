// Which activities must precede which: stream order, waits between streams, and launches after the host had waited for
// the device, closed transitively. What is neither before nor after an activity could have run beside it.
//
// Vector clocks: what precedes an activity on another stream is a beginning of that stream. A stream's clock only
// grows, so its changes are stored, and a question is a binary search.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "timeline/trace/device_order.hpp"

namespace weft {

class DevicePrecedence {
 public:
  // O((n + waits * streams) log n).
  DevicePrecedence(const DeviceTrace& trace, const DeviceOrder& order);

  // How many activities of the stream must precede this one: its places below that number.
  std::int32_t count_before(std::int32_t activity, std::int32_t stream) const;
  // The first place on the stream that this activity must precede; the stream's length where there is none.
  std::int32_t first_after(std::int32_t activity, std::int32_t stream) const;
  bool precedes(std::int32_t before, std::int32_t after) const;

 private:
  // From place `at` of a stream on (of a thread: from the time `at` on), the first `count` activities of another
  // stream precede.
  struct Change {
    std::int64_t at = 0;
    std::int32_t count = 0;
  };
  using Clock = std::map<std::int32_t, std::vector<Change>>;  // by the other stream

  static std::int32_t count_at(const std::vector<Change>& changes, std::int64_t at);
  static void raise(Clock& clock, std::int32_t stream, std::int64_t at, std::int32_t count);
  // All that precedes the activity, and itself, into the clock of whoever waits for it.
  void merge(Clock& into, std::int64_t at, std::int32_t activity, std::int32_t own_stream) const;

  const DeviceOrder* order_;
  std::vector<Clock> clocks_;  // by stream
};

}  // namespace weft
