// Finds the time that ranks themselves need from the times of whole programs.
#pragma once

#include <span>

#include "calibrate/links/measured_links.hpp"

namespace weft {

enum class HostPart : std::uint8_t { call, latency, per_message, bytes, copies, reductions, burst };

// The time of a program that tells one part from the others: its time depends most on that part.
struct HostSample {
  HostPart part = HostPart::call;
  Algorithm algorithm = Algorithm::direct;
  std::int64_t parts = 1;
  ProgramQuestion question;
  Nanos time;
};

// The HostWork with which the model predicts the time of every sample. There is at most one sample for a part; parts
// without one stay as in `first`.
HostWork fit_host_work(const MeasuredLink& link, std::span<const HostSample> samples, const HostWork& first);

}  // namespace weft
