// What ranks themselves take, from the times of programs.
#pragma once

#include <span>

#include "calibrate/links/measured_links.hpp"

namespace weft {

enum class HostPart : std::uint8_t { call, latency, per_message, bytes, copies, reductions, burst };

// A program that tells a part from the others: what it takes depends most on that.
struct HostSign {
  HostPart part = HostPart::call;
  Algorithm algorithm = Algorithm::direct;
  std::int64_t parts = 1;
  ProgramQuestion question;
  Nanos time;
};

// The HostWork with which the model takes as long for every sign as it took; one for each part at most. Parts that have
// none stay as in `first`.
HostWork fit_host_work(const MeasuredLink& link, std::span<const HostSign> signs, const HostWork& first);

}  // namespace weft
