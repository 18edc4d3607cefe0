#include "app/world/handoff_probe.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr std::int64_t kElement = 8;
constexpr Bytes kFew{kElement}, kWorthTiming{2 << 10};
constexpr Bytes kSmall{24 << 10};  // sent as small messages are (comm/tcp/link.cpp)
constexpr Nanos kLeastLatency{1'000};

// Of what a rank sends to all others, for each of them.
Bytes share_of(std::int64_t bytes, std::int64_t ranks) {
  return {std::max(2 * kElement, bytes / (ranks - 1) / kElement * kElement)};
}

}  // namespace

HandoffProbe::HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link)
    : communicator_(communicator),
      ranks_(ranks),
      link_(link),
      many_{std::min(kSmall, share_of(link.burst.value * 4 / 5, communicator.size()))},
      too_many_{share_of(link.burst.value * 2, communicator.size())},
      buffer_(static_cast<std::size_t>(communicator.size() * too_many_.value / kElement)),
      direct_(gather_of(Algorithm::direct, kFew, 1)),
      in_parts_(gather_of(Algorithm::direct, {2 * kElement}, 2)),
      ring_(gather_of(Algorithm::ring, kFew, 1)),
      both_ways_(gather_of(Algorithm::bidirectional_ring, {2 * kElement}, 1)),
      gathered_(gather_of(Algorithm::direct, many_, 1)),
      scattered_(gather_of(Algorithm::direct, many_, 1, Collective::all_to_all)),
      reduced_(gather_of(Algorithm::direct, many_, 1, Collective::reduce_scatter)),
      kept_(gather_of(Algorithm::direct, too_many_, 1)) {}

HandoffProbe::Gather HandoffProbe::gather_of(Algorithm algorithm, Bytes of_rank, std::int64_t parts, Collective kind) {
  const ProgramRequest request{
      .algorithm = algorithm, .kind = kind, .ranks = communicator_.size(), .parts = parts, .in_place = true};
  return {&communicator_.prepare(call_between(request, of_rank.value / kElement * communicator_.size())), {}};
}

void HandoffProbe::time_once() {
  for (Gather* const gather : {&direct_, &in_parts_, &ring_, &both_ways_, &gathered_, &scattered_, &reduced_, &kept_}) {
    ranks_.begin_together();
    const auto begin = RoundTimes::Clock::now();
    communicator_.wait(communicator_.start(*gather->call, nullptr, buffer_.data()));
    gather->times.add(begin, RoundTimes::Clock::now());
  }
}

Nanos HandoffProbe::median_of(const Gather& gather) {
  return median(ranks_.of_all(gather.times));
}

// By what cluster/packet_network.hpp makes of these gathers, n ranks, m for a message, l for the latency: `direct`
// takes l + (n-1) m and `ring` (n-1) (l + m); twice the messages at once take (n-1) m more, and the second direction of
// a ring n/2 m, because one direction's messages travel while the other's are worked on.
HostWork HandoffProbe::result() {
  const std::int64_t size = communicator_.size(), others = size - 1;
  const Nanos direct = median_of(direct_), ring = median_of(ring_);
  HostWork work;
  std::int64_t message = (median_of(in_parts_) - direct).value / others;
  if (size > 2) message = (message + (median_of(both_ways_) - ring).value * 2 / size) / 2;
  work.per_message = {std::max<std::int64_t>(0, message)};
  // Between two there is no ring; the latency that they measured holds a message's work.
  const Nanos step = size > 2 ? Nanos{(ring - direct).value / (size - 2)} : link_.latency - work.per_message;
  work.latency = std::max(kLeastLatency, step);
  // Every rank sends as much as it receives.
  const Nanos longer{(median_of(gathered_) + median_of(scattered_) + median_of(reduced_)).value / 3};
  const auto bytes = static_cast<double>(2 * others * many_.value);
  if (many_ >= kWorthTiming && longer > direct) work.rate = {bytes / seconds(longer - direct)};
  work.call = std::max(Nanos{0}, direct - work.latency - Nanos{others * work.per_message.value});
  const ProgramQuestion kept{.kind = Collective::all_gather,
                             .elements = too_many_.value / kElement * size,
                             .element_size = {kElement},
                             .members = members_up_to(size)};
  const Nanos in_time = time_over_tcp(Algorithm::direct, 1, kept, link_, work);
  // What one link has let go late, the next one need not keep.
  work.late = std::max(Nanos{0}, median_of(kept_) - in_time);
  return work;
}

}  // namespace weft
