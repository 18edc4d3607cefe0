#include "calibrate/links/handoff_probe.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr std::int64_t kElement = 8;
constexpr Bytes kMinTimedBytes{2 << 10};
constexpr Bytes kSmall{24 << 10};  // sent as small messages are (comm/tcp/link.cpp)

// Returns each peer's share of `bytes`: at least two elements, and a whole number of pairs of elements.
Bytes share_of(std::int64_t bytes, std::int64_t ranks) {
  return {std::max(2 * kElement, bytes / (ranks - 1) / (2 * kElement) * (2 * kElement))};
}

}  // namespace

HandoffProbe::HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link)
    : communicator_(communicator), ranks_(ranks), link_(link) {
  const std::int64_t size = communicator.size();
  const Bytes many = std::min(kSmall, share_of(link.burst.value * 4 / 5, size)), some = share_of(many.value / 4, 2);
  const Bytes too_many = share_of(link.burst.value * 2, size);
  input_.resize(size * std::max(too_many, kSmall).value / kElement);
  output_.resize(input_.size());
  if (link.burst.value > 0) {  // in a ring two streams never meet; messages are small, as those of the other probes
    const std::int64_t parts = (too_many.value + kSmall.value - 1) / kSmall.value;
    probes_.push_back(probe_of(HostPart::burst, Collective::all_gather, Algorithm::ring, too_many, parts));
  }
  probes_.push_back(probe_of(HostPart::call, Collective::all_gather, Algorithm::direct, some));
  if (size > 2) {
    probes_.push_back(probe_of(HostPart::latency, Collective::all_gather, Algorithm::ring, many));
    probes_.push_back(probe_of(HostPart::per_message, Collective::all_gather, Algorithm::bidirectional_ring, many));
  } else {
    probes_.push_back(probe_of(HostPart::per_message, Collective::all_gather, Algorithm::direct, many, 2));
  }
  if (many >= kMinTimedBytes) {
    probes_.push_back(probe_of(HostPart::bytes, Collective::all_to_all, Algorithm::direct, many));
    probes_.push_back(probe_of(HostPart::reductions, Collective::reduce_scatter, Algorithm::direct, many));
  }
  after_ = probe_of(HostPart::call, Collective::all_gather, Algorithm::bruck, some);
}

HandoffProbe::Probe HandoffProbe::probe_of(HostPart part, Collective kind, Algorithm algorithm, Bytes of_rank,
                                           std::int64_t parts) {
  const ProgramRequest request{.algorithm = algorithm, .kind = kind, .ranks = communicator_.size(), .parts = parts};
  const std::int64_t elements = of_rank.value / kElement * request.ranks;
  const ProgramQuestion question{.kind = kind,
                                 .elements = elements,
                                 .element_size = {kElement},
                                 .in_place = request.in_place,
                                 .members = members_up_to(request.ranks)};
  PreparedCall call = call_between(request, elements);
  call.queue = 0;  // the queue of the programs that it is compared with
  return {{part, algorithm, parts, question, {}}, &communicator_.prepare(std::move(call)), {}};
}

void HandoffProbe::run(Probe& probe) {
  ranks_.begin_together();
  const auto begin = RoundTimes::Clock::now();
  communicator_.wait(communicator_.start(*probe.call, input_.data(), output_.data()));
  probe.times.add(begin, RoundTimes::Clock::now());
}

void HandoffProbe::time_once() {
  for (Probe& probe : probes_) {
    run(probe);
    if (probe.sample.part == HostPart::burst) run(after_);
  }
  const auto few = static_cast<std::ptrdiff_t>(kSmall.value / kElement);
  const auto begin = RoundTimes::Clock::now();
  // This memory was not used just now, nor is a program's data.
  std::copy_n(input_.end() - few, few, output_.end() - few);
  copied_.add(begin, RoundTimes::Clock::now());
}

HostWork HandoffProbe::result() {
  std::vector<HostSample> samples;
  for (const Probe& probe : probes_) {
    samples.push_back(probe.sample);
    samples.back().time = median(ranks_.of_all(probe.times));
  }
  HostWork first;
  first.latency = link_.latency;
  first.copies = {static_cast<double>(kSmall.value) / seconds(std::max(Nanos{1}, median(ranks_.of_all(copied_))))};
  first.burst = link_.burst;
  return fit_host_work(link_, samples, first);
}

}  // namespace weft
