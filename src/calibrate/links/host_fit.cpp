#include "calibrate/links/host_fit.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace weft {
namespace {

constexpr std::size_t kParts = 7;
// By HostPart, in nanoseconds, nanoseconds per byte, or bytes.
using Values = std::array<double, kParts>;
constexpr Values kStep = {500, 500, 500, 0.02, 0.02, 0.02, -256};
constexpr Values kMin = {0, 1'000, 0, 0, 0, 0, 256};  // the burst minus one step stays positive
constexpr int kMaxRounds = 40;
constexpr double kMaxRelativeError = 5e-4;  // of a sample's time
constexpr double kShareOfWay = 0.7;         // of the way that one part moves in a round, because the others move too

Bandwidth rate_of(double nanos_per_byte) {
  return {nanos_per_byte > 0 ? 1e9 / nanos_per_byte : 0};
}

double nanos_per_byte(Bandwidth rate) {
  return rate.bytes_per_second > 0 ? 1e9 / rate.bytes_per_second : 0;
}

Values values_of(const HostWork& work) {
  return {static_cast<double>(work.call.value),
          static_cast<double>(work.latency.value),
          static_cast<double>(work.per_message.value),
          nanos_per_byte(work.rate),
          nanos_per_byte(work.copies),
          nanos_per_byte(work.reductions),
          static_cast<double>(work.burst.value)};
}

HostWork work_of(const Values& values) {
  return {.call = {std::llround(values[0])},
          .latency = {std::llround(values[1])},
          .per_message = {std::llround(values[2])},
          .rate = rate_of(values[3]),
          .copies = rate_of(values[4]),
          .reductions = rate_of(values[5]),
          .burst = {std::llround(values[6])}};
}

}  // namespace

HostWork fit_host_work(const MeasuredLink& link, std::span<const HostSample> samples, const HostWork& first) {
  Values values = values_of(first);
  const auto missing = [&](const HostSample& sample, const Values& with) {
    const Nanos predicted = time_over_tcp(sample.algorithm, sample.parts, sample.question, link, work_of(with));
    return static_cast<double>((sample.time - predicted).value);
  };
  bool settled = false;
  for (int round = 0; round < kMaxRounds && !settled; ++round) {
    settled = true;
    for (const HostSample& sample : samples) {
      const auto part = static_cast<std::size_t>(sample.part);
      const double now = missing(sample, values);
      if (std::abs(now) <= kMaxRelativeError * static_cast<double>(sample.time.value)) continue;
      settled = false;
      Values stepped = values;
      stepped[part] += kStep[part];
      const double gained = now - missing(sample, stepped);  // 0 or less: another part decides this time
      if (gained <= 0) continue;
      double moved = values[part] + kShareOfWay * kStep[part] * now / gained;
      if (sample.part == HostPart::burst)
        moved = std::min(moved, static_cast<double>(link.burst.value));  // the link has no more
      values[part] = std::max(kMin[part], moved);
    }
  }
  return work_of(values);
}

}  // namespace weft
