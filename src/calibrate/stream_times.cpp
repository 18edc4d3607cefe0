#include "calibrate/stream_times.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/library_times.hpp"
#include "calibrate/rank_means.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

using Clock = CalibrationPasses::Clock;

constexpr std::int64_t kFirstQueue = 900;  // from here on are numbers that no plan uses
constexpr std::int64_t kAtOnce = 3;        // collectives that run at once
constexpr Bytes kSmallest{16 << 10};       // of the whole buffer
constexpr Bytes kFinest{1 << 20};          // larger sizes are a factor of 4 apart, smaller ones of 16
constexpr Bytes kBesideCompute{16 << 20};
constexpr double kSecondsOfSize = 0.08;  // a size is repeated for so long
constexpr double kMinRounds = 3, kMaxRounds = 40;
constexpr std::chrono::microseconds kPause{50};

// A device's collectives of one queue, one after the other in a stream of their own.
class CollectiveStream {
 public:
  CollectiveStream(const Processor& processor, std::int64_t rank, std::int64_t queue, Bytes largest)
      : device_(*processor.device),
        collectives_(*processor.collectives),
        rank_(rank),
        queue_(queue),
        stream_(device_.make_stream(StreamPriority::high)),
        begun_(device_.make_event()),
        ended_(device_.make_event()),
        largest_(largest),
        buffers_(largest * 2, &device_) {}

  // Returns the number by which rounds of it are started. `identity`: the same on all members.
  std::size_t prepare(Collective collective, std::vector<std::int64_t> members, Bytes bytes, std::int64_t identity) {
    PreparedCall call;
    const auto ranks = std::ssize(members);
    call.spec = {.kind = collective, .ranks = ranks, .pieces = is_divided(collective) ? ranks : 1};
    call.sizes = even_sizes(call.spec, bytes.value / std::int64_t{sizeof(float)});
    const std::int64_t self = std::find(members.begin(), members.end(), rank_) - members.begin();
    call.members = std::move(members);
    call.queue = queue_;
    call.label = "timed";
    call.identity = identity;
    Call& own = calls_.emplace_back();
    const auto add = [](std::vector<Segment>& to, std::byte* at, std::int64_t elements) {
      if (elements > 0) to.push_back({at, elements * std::int64_t{sizeof(float)}});
    };
    add(own.output, buffers_.data(), output_elements(call.spec, call.sizes, self));
    if (collective == Collective::all_reduce) {
      own.input = own.output;
    } else {
      add(own.input, buffers_.data() + largest_.value, input_elements(call.spec, call.sizes, self));
    }
    own.number = collectives_.prepare(call, own.input, own.output);
    return calls_.size() - 1;
  }

  void start(std::size_t call, std::int64_t rounds) {
    const Call& own = calls_[call];
    device_.record(begun_, stream_);
    for (std::int64_t round = 0; round < rounds; ++round) {
      collectives_.start(own.number, own.input, own.output, device_.native(stream_));
    }
    device_.record(ended_, stream_);
  }
  bool is_over() { return device_.is_over(ended_); }
  void wait() {
    while (!is_over()) std::this_thread::sleep_for(kPause);
  }
  // Of what was started last, when it is over.
  Clock::time_point begin() { return time_of(begun_); }
  Clock::time_point end() { return time_of(ended_); }
  double seconds_of(std::size_t call, std::int64_t rounds) {
    start(call, rounds);
    wait();
    return CalibrationPasses::in_seconds(end() - begin()) / static_cast<double>(rounds);
  }

 private:
  struct Call {
    std::size_t number = 0;
    std::vector<Segment> input, output;
  };
  Clock::time_point time_of(EventId event) {
    return Clock::time_point(std::chrono::nanoseconds(device_.time_of(event)));
  }

  Accelerator& device_;
  StreamCollectives& collectives_;
  std::int64_t rank_, queue_;
  StreamId stream_;
  EventId begun_, ended_;
  Bytes largest_;
  RankMemory buffers_;  // the inputs' behind the outputs'
  std::vector<Call> calls_;
};

// What a collective of the library is timed on; `call` is of a member.
struct TimedSize {
  LibraryProfile::Group group;
  Bytes bytes;
  std::optional<std::size_t> call;
};

bool has_messages(const StepGraph& graph) {
  return std::ranges::any_of(graph.operations, [](const Operation& op) {
    return op.communication && op.communication->collective == Collective::send_recv;
  });
}

std::vector<TimedSize> prepare_sizes(const RankView& view, Bytes largest, CollectiveStream& stream) {
  std::vector<TimedSize> sizes;
  const auto add = [&](LibraryProfile::Group group, bool is_member, const std::vector<std::int64_t>& members) {
    for (Bytes bytes = kSmallest; bytes <= largest; bytes = bytes * (bytes < kFinest ? 16 : 4)) {
      TimedSize& size = sizes.emplace_back(TimedSize{group, bytes, {}});
      if (is_member) size.call = stream.prepare(group.collective, members, bytes, std::ssize(sizes));
    }
  };
  for (const auto& [group, kind] : groups_to_time(view.plan().graph)) {
    const bool is_member = is_timed_on(view, group, kind);
    add(group, is_member, is_member ? view.members(kind) : std::vector<std::int64_t>{});
  }
  // The first two ranks stand for all that tell each other something.
  if (has_messages(view.plan().graph)) add({Collective::send_recv, 2}, view.rank().value < 2, {0, 1});
  return sizes;
}

// All ranks make as many rounds.
std::int64_t rounds_of(double seconds_of_all, double seconds_of_one) {
  return std::llround(std::clamp(seconds_of_all / std::max(seconds_of_one, 1e-6), kMinRounds, kMaxRounds));
}

LibraryProfile time_sizes(Communicator& communicator, const std::vector<TimedSize>& sizes, CollectiveStream& stream) {
  LibraryProfile library;
  for (const TimedSize& size : sizes) {
    const auto mean_seconds = [&](std::int64_t rounds) {
      meet(communicator);
      const double own = size.call ? stream.seconds_of(*size.call, rounds) : 0.0;
      const std::vector<double> sums = sums_of_ranks(communicator, {own, size.call ? 1.0 : 0.0});
      return sums[0] / std::max(sums[1], 1.0);
    };
    mean_seconds(1);  // the first one does not count
    const double took = mean_seconds(rounds_of(kSecondsOfSize, mean_seconds(1)));
    library.measured[size.group].push_back({size.bytes, nanos_from_seconds(took)});
  }
  return library;
}

// An all_reduce of all ranks on several queues.
struct QueuedCall {
  std::unique_ptr<CollectiveStream> stream;
  std::size_t call = 0;
};

// How many times the bytes of one they move together.
double time_at_once(Communicator& communicator, std::vector<QueuedCall>& queues, double alone) {
  meet(communicator);
  for (QueuedCall& queue : queues) queue.stream->seconds_of(queue.call, 1);
  const std::int64_t rounds = rounds_of(kSecondsOfSize, alone);
  meet(communicator);
  // Hosts that come late in turn would leave a queue without a call.
  for (QueuedCall& queue : queues) queue.stream->start(queue.call, rounds);
  for (QueuedCall& queue : queues) queue.stream->wait();
  double longest = 0;
  for (QueuedCall& queue : queues) {
    longest = std::max(longest, CalibrationPasses::in_seconds(queue.stream->end() - queues[0].stream->begin()));
  }
  const double together = mean_of_ranks(communicator, {longest / static_cast<double>(rounds)}).front();
  return std::clamp(alone * static_cast<double>(queues.size()) / together, 1.0, static_cast<double>(queues.size()));
}

struct Execution {
  OpKey key;
  Clock::time_point begin, end;
};

// Operations beside a transfer, and the transfer beside operations.
void time_together(Communicator& communicator, CalibrationPasses& passes, QueuedCall& transfer, double alone,
                   Calibration& result) {
  CollectiveStream& stream = *transfer.stream;
  const double pass = mean_of_ranks(communicator, {passes.expected(result.operations, Nanos{0})}).front();
  const std::int64_t rounds = rounds_of(2 * pass, alone);
  std::vector<Execution> executions;
  meet(communicator);
  stream.start(transfer.call, rounds);
  while (!stream.is_over()) {
    passes.run([&](const OpKey& key, Clock::time_point begin,
                   Clock::time_point end) { executions.push_back({key, begin, end}); },
               [] { return false; });
  }
  double took = 0, would_take = 0;
  for (const Execution& each : executions) {
    if (each.begin < stream.begin() || each.end > stream.end()) continue;
    took += CalibrationPasses::in_seconds(each.end - each.begin);
    would_take += seconds(result.operations.at(each.key));
  }
  const double beside = CalibrationPasses::in_seconds(stream.end() - stream.begin()) / static_cast<double>(rounds);
  const std::vector<double> factors =
      mean_of_ranks(communicator, {would_take > 0 ? took / would_take : 1.0, beside / alone});
  result.compute_slowdown = std::max(0.0, factors[0] - 1);
  result.transfer_slowdown = std::max(0.0, factors[1] - 1);
}

}  // namespace

void measure_streams(Communicator& communicator, const Processor& processor, Bytes largest, CalibrationPasses& passes,
                     Calibration& result) {
  CollectiveStream stream(processor, communicator.rank(), kFirstQueue, largest);
  const std::vector<TimedSize> sizes = prepare_sizes(passes.view(), largest, stream);
  std::vector<std::int64_t> all;
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) all.push_back(rank);
  const Bytes bytes = std::min(kBesideCompute, largest);
  std::vector<QueuedCall> queues;
  for (std::int64_t queue = 0; queue < kAtOnce; ++queue) {
    QueuedCall& own = queues.emplace_back();
    own.stream = std::make_unique<CollectiveStream>(processor, communicator.rank(), kFirstQueue + 1 + queue, bytes);
    own.call = own.stream->prepare(Collective::all_reduce, all, bytes, 0);
  }
  processor.collectives->connect();
  result.library = time_sizes(communicator, sizes, stream);
  meet(communicator);
  queues[0].stream->seconds_of(queues[0].call, 1);
  const double alone =
      mean_of_ranks(communicator, {queues[0].stream->seconds_of(queues[0].call, rounds_of(kSecondsOfSize, 0))}).front();
  result.library.at_once = time_at_once(communicator, queues, alone);
  time_together(communicator, passes, queues[0], alone, result);
}

}  // namespace weft
