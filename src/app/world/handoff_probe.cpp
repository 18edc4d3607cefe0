#include "app/world/handoff_probe.hpp"

#include <algorithm>
#include <cmath>

namespace weft {
namespace {

constexpr std::int64_t kElement = 8;
constexpr Bytes kWorthTiming{2 << 10};
constexpr Bytes kSmall{24 << 10};  // sent as small messages are (comm/tcp/link.cpp)
constexpr Nanos kLeastLatency{1'000}, kShortest{1};
constexpr int kGuesses = 3;

// Of what a rank sends to all others, for each of them: a whole number of halves.
Bytes share_of(std::int64_t bytes, std::int64_t ranks) {
  return {std::max(2 * kElement, bytes / (ranks - 1) / (2 * kElement) * (2 * kElement))};
}

std::int64_t parts_of(Bytes bytes) {
  return (bytes.value + kSmall.value - 1) / kSmall.value;
}

}  // namespace

HandoffProbe::HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link)
    : communicator_(communicator),
      ranks_(ranks),
      link_(link),
      many_{std::min(kSmall, share_of(link.burst.value * 4 / 5, communicator.size()))},
      some_{share_of(many_.value / 4, 2)},
      too_many_{share_of(link.burst.value * 2, communicator.size())},
      input_(static_cast<std::size_t>(communicator.size() * too_many_.value / kElement)),
      output_(input_.size()),
      direct_(probe_of(Collective::all_gather, Algorithm::direct, some_)),
      in_parts_(probe_of(Collective::all_gather, Algorithm::direct, some_, 2)),
      ring_(probe_of(Collective::all_gather, Algorithm::ring, some_)),
      both_ways_(probe_of(Collective::all_gather, Algorithm::bidirectional_ring, some_)),
      gathered_(probe_of(Collective::all_gather, Algorithm::direct, many_)),
      scattered_(probe_of(Collective::all_to_all, Algorithm::direct, many_)),
      reduced_(probe_of(Collective::reduce_scatter, Algorithm::direct, many_)),
      kept_(probe_of(Collective::all_gather, Algorithm::ring, too_many_, parts_of(too_many_))),
      after_(probe_of(Collective::all_gather, Algorithm::bruck, some_)) {}

HandoffProbe::Probe HandoffProbe::probe_of(Collective kind, Algorithm algorithm, Bytes of_rank, std::int64_t parts) {
  const ProgramRequest request{.algorithm = algorithm, .kind = kind, .ranks = communicator_.size(), .parts = parts};
  PreparedCall call = call_between(request, of_rank.value / kElement * request.ranks);
  call.queue = 0;  // as what is compared with it
  return {request, of_rank, &communicator_.prepare(std::move(call)), {}};
}

void HandoffProbe::run(Probe& probe) {
  ranks_.begin_together();
  const auto begin = RoundTimes::Clock::now();
  communicator_.wait(communicator_.start(*probe.call, input_.data(), output_.data()));
  probe.times.add(begin, RoundTimes::Clock::now());
}

void HandoffProbe::time_once() {
  run(kept_);
  for (Probe* const probe : {&after_, &direct_, &in_parts_, &ring_, &both_ways_, &gathered_, &scattered_, &reduced_}) {
    run(*probe);
  }
  const auto begin = RoundTimes::Clock::now();
  std::copy_n(input_.begin(), many_.value / kElement, output_.begin());
  copied_.add(begin, RoundTimes::Clock::now());
}

Nanos HandoffProbe::median_of(const RoundTimes& times) {
  return std::max(kShortest, median(ranks_.of_all(times)));
}

// By what cluster/packet_network.hpp makes of these collectives, n ranks, m for a message, l for the latency: `direct`
// takes l + (n-1) m and `ring` (n-1) (l + m); twice the messages at once take (n-1) m more, and the second direction of
// a ring n/2 m, because one direction's messages travel while the other's are worked on.
HostWork HandoffProbe::result() {
  const std::int64_t size = communicator_.size(), others = size - 1;
  const Nanos direct = median_of(direct_.times), ring = median_of(ring_.times);
  HostWork work;
  std::int64_t message = (median_of(in_parts_.times) - direct).value / others;
  if (size > 2) message = (message + (median_of(both_ways_.times) - ring).value * 2 / size) / 2;
  work.per_message = {std::max<std::int64_t>(0, message)};
  // Between two there is no ring; the latency that they measured holds a message's work.
  const Nanos step = size > 2 ? Nanos{(ring - direct).value / (size - 2)} : link_.latency - work.per_message;
  work.latency = std::max(kLeastLatency, step);
  // Every rank sends as much as it receives.
  const Nanos longer{(median_of(gathered_.times) + median_of(scattered_.times)).value / 2};
  Nanos of_bytes;
  if (many_ >= kWorthTiming && longer > direct) {
    work.rate = {static_cast<double>(2 * others * (many_ - some_).value) / seconds(longer - direct)};
    of_bytes = nanos_from_seconds(static_cast<double>(2 * others * some_.value) / work.rate.bytes_per_second);
  }
  work.call = std::max(Nanos{0}, direct - of_bytes - work.latency - Nanos{others * work.per_message.value});
  const Nanos reducing = std::max(kShortest, median_of(reduced_.times) - longer);
  work.reductions = {static_cast<double>(others * many_.value) / seconds(reducing)};
  work.copies = {static_cast<double>(many_.value) / seconds(median_of(copied_))};
  work.burst = burst_by(work);
  return work;
}

// A stream says within some 20 us what links let through at once; what programs find also holds how late the timers of
// links wake up. So much that a ring, in which streams do not meet, takes as long as it did.
Bytes HandoffProbe::burst_by(const HostWork& work) {
  const ProgramQuestion kept{.kind = Collective::all_gather,
                             .elements = too_many_.value / kElement * communicator_.size(),
                             .element_size = {kElement},
                             .in_place = false,
                             .members = members_up_to(communicator_.size())};
  const Nanos measured = median_of(kept_.times);
  HostWork guess = work;
  guess.burst = link_.burst;
  for (int i = 0; i < kGuesses; ++i) {
    const Nanos missing = measured - time_over_tcp(Algorithm::ring, parts_of(too_many_), kept, link_, guess);
    guess.burst.value = std::max<std::int64_t>(0, guess.burst.value - std::llround(seconds(missing) * link_.goodput));
  }
  return guess.burst;
}

}  // namespace weft
