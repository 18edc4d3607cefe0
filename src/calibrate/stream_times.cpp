#include "calibrate/stream_times.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/library_times.hpp"
#include "calibrate/rank_means.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

using Clock = CalibrationPasses::Clock;

constexpr std::int64_t kQueue = 999;  // a number that no plan uses
constexpr std::int64_t kSmallest = 16 << 10;  // bytes of the whole buffer
constexpr std::int64_t kFinest = 1 << 20;     // larger sizes are a factor of 4 apart, smaller ones of 16
constexpr Bytes kBesideCompute{16 << 20};
constexpr double kSecondsOfSize = 0.08;  // a size is repeated for so long
constexpr double kMinRounds = 3, kMaxRounds = 40;
constexpr std::chrono::microseconds kPause{50};

// A device's collectives, one after the other in a stream of their own.
class CollectiveStream {
 public:
  CollectiveStream(const Processor& processor, std::int64_t rank, Bytes largest)
      : device_(*processor.device),
        collectives_(*processor.collectives),
        rank_(rank),
        stream_(device_.make_stream(StreamPriority::high)),
        begun_(device_.make_event()),
        ended_(device_.make_event()),
        largest_(largest),
        buffers_(largest * 2, &device_) {}

  // Returns the number by which rounds of it are started.
  // `identity`: the same on all members.
  std::size_t prepare(Collective collective, std::vector<std::int64_t> members, std::int64_t bytes,
                      std::int64_t identity) {
    PreparedCall call;
    const auto ranks = std::ssize(members);
    call.spec = {.kind = collective, .ranks = ranks, .pieces = is_divided(collective) ? ranks : 1};
    call.sizes = even_sizes(call.spec, bytes / std::int64_t{sizeof(float)});
    const std::int64_t self = std::find(members.begin(), members.end(), rank_) - members.begin();
    call.members = std::move(members);
    call.queue = kQueue;
    call.label = "timed";
    call.identity = identity;
    const auto segment = [](std::byte* at, std::int64_t elements) -> Segment {
      return {at, elements * std::int64_t{sizeof(float)}};
    };
    Call& own = calls_.emplace_back();
    own.output = segment(buffers_.data(), output_elements(call.spec, call.sizes, self));
    own.input = collective == Collective::all_reduce
                    ? own.output
                    : segment(buffers_.data() + largest_.value, input_elements(call.spec, call.sizes, self));
    own.number = collectives_.prepare(call, {&own.input, 1}, {&own.output, 1});
    return calls_.size() - 1;
  }
  void connect() { collectives_.connect(); }

  void start(std::size_t call, std::int64_t rounds) {
    Call& own = calls_[call];
    device_.record(begun_, stream_);
    for (std::int64_t round = 0; round < rounds; ++round) {
      collectives_.start(own.number, {&own.input, 1}, {&own.output, 1}, device_.native(stream_));
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
    Segment input, output;
  };
  Clock::time_point time_of(EventId event) {
    return Clock::time_point(std::chrono::nanoseconds(device_.time_of(event)));
  }

  Accelerator& device_;
  StreamCollectives& collectives_;
  std::int64_t rank_;
  StreamId stream_;
  EventId begun_, ended_;
  Bytes largest_;
  RankMemory buffers_;  // of inputs behind that of outputs
  std::vector<Call> calls_;
};

// What a collective of the library is timed on; `call` is of a member.
struct TimedSize {
  LibraryProfile::Group group;
  std::int64_t bytes = 0;
  std::optional<std::size_t> call;
};

std::vector<TimedSize> prepare_sizes(const RankView& view, Bytes largest, CollectiveStream& stream) {
  std::vector<TimedSize> sizes;
  for (const auto& [group, kind] : groups_to_time(view.plan().graph)) {
    for (std::int64_t bytes = kSmallest; bytes <= largest.value; bytes *= bytes < kFinest ? 16 : 4) {
      TimedSize& size = sizes.emplace_back(TimedSize{group, bytes, {}});
      if (!is_timed_on(view, group, kind)) continue;
      size.call = stream.prepare(group.collective, view.members(kind), bytes, std::ssize(sizes));
    }
  }
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
    library.measured[size.group].push_back({Bytes{size.bytes}, nanos_from_seconds(took)});
  }
  return library;
}

struct Execution {
  OpKey key;
  Clock::time_point begin, end;
};

void time_together(Communicator& communicator, CalibrationPasses& passes, CollectiveStream& stream, std::size_t call,
                   Calibration& result) {
  meet(communicator);
  stream.seconds_of(call, 1);
  const double alone = mean_of_ranks(communicator, {stream.seconds_of(call, 3)}).front();
  const double pass = mean_of_ranks(communicator, {passes.expected(result.operations, Nanos{0})}).front();
  const std::int64_t rounds = rounds_of(2 * pass, alone);
  std::vector<Execution> executions;
  meet(communicator);
  stream.start(call, rounds);
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
  CollectiveStream stream(processor, communicator.rank(), largest);
  const std::vector<TimedSize> sizes = prepare_sizes(passes.view(), largest, stream);
  std::vector<std::int64_t> all;
  for (std::int64_t rank = 0; rank < communicator.size(); ++rank) all.push_back(rank);
  const std::size_t beside_compute = stream.prepare(Collective::all_reduce, all, std::min(kBesideCompute, largest).value, 0);
  stream.connect();
  result.library = time_sizes(communicator, sizes, stream);
  time_together(communicator, passes, stream, beside_compute, result);
}

}  // namespace weft
