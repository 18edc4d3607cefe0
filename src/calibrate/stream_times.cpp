#include "calibrate/stream_times.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <numeric>

#include "base/error.hpp"
#include "calibrate/library_times.hpp"
#include "calibrate/rank_means.hpp"
#include "calibrate/thread_blocks.hpp"
#include "collective/algorithms.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

using Clock = CalibrationPasses::Clock;

constexpr std::int64_t kFirstQueue = 900;  // from here on are numbers that no plan uses
constexpr std::int64_t kAtOnce = 3;        // collectives that run at once
// Where ranks of one process share a GPU: what it has, and what a rank's computation takes of it with its clock and the
// streams that wait for it.
constexpr std::int64_t kHardwareQueues = 32, kQueuesOfCompute = 4;
constexpr Bytes kSmallest{16 << 10};  // of the whole buffer
constexpr Bytes kFinest{1 << 20};     // larger sizes are a factor of 4 apart, smaller ones of 16
constexpr Bytes kBesideCompute{16 << 20};
constexpr std::array<std::int32_t, 4> kThreadBlocks = {0, 1, 2, 4};  // 0: the library's choice
constexpr double kSecondsOfSize = 0.08;                              // a size is repeated for so long
constexpr double kMinRounds = 3, kMaxRounds = 40;
constexpr std::int64_t kRoundsApart = 12;
constexpr double kPauseSeconds = 1e-3, kMaxWrites = 40;  // a stream takes about a thousand calls
constexpr double kPasses = 3;                            // of the step's computation beside transfers
constexpr std::chrono::microseconds kPause{50};

// A device's collectives of one queue, one after the other in a stream of their own.
class CollectiveStream {
 public:
  CollectiveStream(Communicator& communicator, const Processor& processor, std::int64_t queue, Bytes largest)
      : communicator_(communicator),
        device_(*processor.device),
        collectives_(*processor.collectives),
        queue_(queue),
        stream_(device_.make_stream(StreamPriority::high)),
        begun_(device_.make_event()),
        ended_(device_.make_event()),
        largest_(largest),
        buffers_(largest * 2, &device_) {}

  // Returns the number by which rounds of it are started. `identity`: the same on all members.
  std::size_t prepare(Collective collective, std::vector<std::int64_t> members, Bytes bytes, std::int64_t identity,
                      std::int32_t thread_blocks) {
    PreparedCall call;
    const auto ranks = std::ssize(members);
    call.spec = {.kind = collective, .ranks = ranks, .pieces = is_divided(collective) ? ranks : 1};
    return prepare(std::move(call), std::move(members), bytes, identity, thread_blocks);
  }
  // The same of a program of our own.
  std::size_t prepare(std::shared_ptr<const Program> program, std::vector<std::int64_t> members, Bytes bytes,
                      std::int64_t identity, std::int32_t thread_blocks) {
    PreparedCall call;
    call.spec = program->spec;
    call.program = std::move(program);
    return prepare(std::move(call), std::move(members), bytes, identity, thread_blocks);
  }

  void start(std::size_t call, std::int64_t rounds) {
    const Call& own = calls_[call];
    device_.record(begun_, stream_);
    for (std::int64_t round = 0; round < rounds; ++round) {
      collectives_.start(own.number, own.input, own.output, device_.native(stream_));
    }
    device_.record(ended_, stream_);
  }
  // The same with a pause before each, in which the device writes to memory.
  void start_apart(std::size_t call, std::int64_t rounds, std::int64_t writes) {
    device_.record(begun_, stream_);
    for (std::int64_t round = 0; round < rounds; ++round) {
      pause(writes);
      collectives_.start(calls_[call].number, calls_[call].input, calls_[call].output, device_.native(stream_));
    }
    device_.record(ended_, stream_);
  }
  // Throws RunFailed where a rank is lost, so that nobody waits for it.
  bool is_over() {
    if (device_.is_over(ended_)) return true;
    try {
      communicator_.require_alive();
      if (const std::string why = collectives_.failure(); !why.empty()) throw RunFailed(why);
    } catch (const RunFailed& failure) {
      collectives_.abort(failure.what());  // whoever frees memory would wait for the stream
      throw;
    }
    return false;
  }
  void wait() {
    while (!is_over()) std::this_thread::sleep_for(kPause);
  }
  // Of what was started last, when it is over.
  Clock::time_point begin() { return time_of(begun_); }
  Clock::time_point end() { return time_of(ended_); }
  double seconds_of(std::size_t call, std::int64_t rounds) {
    start(call, rounds);
    return seconds_each(rounds);
  }
  double seconds_of_write() {
    constexpr std::int64_t kWrites = 32;
    device_.record(begun_, stream_);
    pause(kWrites);
    device_.record(ended_, stream_);
    return seconds_each(kWrites);
  }
  // Of one with a pause of so many writes before it, without the pause.
  double seconds_apart(std::size_t call, std::int64_t rounds, std::int64_t writes, double seconds_of_a_write) {
    start_apart(call, rounds, writes);
    return seconds_each(rounds) - static_cast<double>(writes) * seconds_of_a_write;
  }

 private:
  void pause(std::int64_t writes) {
    for (std::int64_t i = 0; i < writes; ++i) device_.clear(stream_, buffers_.data(), largest_ * 2);
  }
  double seconds_each(std::int64_t times) {
    wait();
    return CalibrationPasses::in_seconds(end() - begin()) / static_cast<double>(times);
  }

  struct Call {
    std::size_t number = 0;
    std::vector<Segment> input, output;
  };
  // `call` says what it is.
  std::size_t prepare(PreparedCall call, std::vector<std::int64_t> members, Bytes bytes, std::int64_t identity,
                      std::int32_t thread_blocks) {
    call.sizes = even_sizes(call.spec, bytes.value / std::int64_t{sizeof(float)});
    const std::int64_t self = std::find(members.begin(), members.end(), communicator_.rank()) - members.begin();
    call.members = std::move(members);
    call.queue = queue_;
    call.label = "timed";
    call.identity = identity;
    call.thread_blocks = thread_blocks;
    Call& own = calls_.emplace_back();
    const auto add = [](std::vector<Segment>& to, std::byte* at, std::int64_t elements) {
      if (elements > 0) to.push_back({at, elements * std::int64_t{sizeof(float)}});
    };
    add(own.output, buffers_.data(), output_elements(call.spec, call.sizes, self));
    if (call.spec.kind == Collective::all_reduce) {
      own.input = own.output;
    } else {
      add(own.input, buffers_.data() + largest_.value, input_elements(call.spec, call.sizes, self));
    }
    own.number = collectives_.prepare(call, own.input, own.output);
    return calls_.size() - 1;
  }
  Clock::time_point time_of(EventId event) {
    return Clock::time_point(std::chrono::nanoseconds(device_.time_of(event)));
  }

  Communicator& communicator_;
  Accelerator& device_;
  StreamCollectives& collectives_;
  std::int64_t queue_;
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

std::vector<TimedSize> prepare_sizes(const RankView& view, Bytes largest, std::int32_t thread_blocks,
                                     CollectiveStream& stream) {
  std::vector<TimedSize> sizes;
  const auto add = [&](LibraryProfile::Group group, bool is_member, const std::vector<std::int64_t>& members) {
    for (Bytes bytes = kSmallest; bytes <= largest; bytes = bytes * (bytes < kFinest ? 16 : 4)) {
      TimedSize& size = sizes.emplace_back(TimedSize{group, bytes, {}});
      if (is_member) size.call = stream.prepare(group.collective, members, bytes, std::ssize(sizes), thread_blocks);
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
  stream.seconds_of_write();
  const double write = mean_of_ranks(communicator, {stream.seconds_of_write()}).front();
  const auto writes = static_cast<std::int64_t>(std::clamp(kPauseSeconds / std::max(write, 1e-9), 1.0, kMaxWrites));
  for (const TimedSize& size : sizes) {
    const auto mean_of_members = [&](const auto& own_seconds) {
      meet(communicator);
      const double own = size.call ? own_seconds(*size.call) : 0.0;
      const std::vector<double> sums = sums_of_ranks(communicator, {own, size.call ? 1.0 : 0.0});
      return sums[0] / std::max(sums[1], 1.0);
    };
    const auto in_a_row = [&](std::int64_t rounds) {
      return mean_of_members([&](std::size_t call) { return stream.seconds_of(call, rounds); });
    };
    in_a_row(1);  // the first one does not count
    const double took = in_a_row(rounds_of(kSecondsOfSize, in_a_row(1)));
    const double apart =
        mean_of_members([&](std::size_t call) { return stream.seconds_apart(call, kRoundsApart, writes, write); });
    library.measured[size.group].push_back(
        {size.bytes, nanos_from_seconds(took), nanos_from_seconds(std::max(took, apart))});
  }
  return library;
}

std::vector<std::int64_t> first_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A collective of the first ranks.
struct QueuedCall {
  QueuedCall(CollectiveStream& of, const Communicator& communicator, Bytes bytes, std::int32_t thread_blocks,
             Collective collective = Collective::all_reduce, std::optional<std::int64_t> ranks = {})
      : stream(of), is_member(communicator.rank() < ranks.value_or(communicator.size())) {
    const std::int64_t members = ranks.value_or(communicator.size());
    if (is_member) call = stream.prepare(collective, first_ranks(members), bytes, 0, thread_blocks);
  }
  // Seconds of one that runs alone.
  double alone(Communicator& communicator) const {
    meet(communicator);
    stream.seconds_of(call, 1);
    return mean_of_ranks(communicator, {stream.seconds_of(call, rounds_of(kSecondsOfSize, 0))}).front();
  }

  CollectiveStream& stream;
  bool is_member = true;
  std::size_t call = 0;
};

struct Execution {
  OpKey key;
  Clock::time_point begin, end;
};

// How many times as long as alone operations took; 1 where there is none.
double times_as_long(const std::vector<Execution>& executions, const std::map<OpKey, Nanos>& alone) {
  double took = 0, would_take = 0;
  for (const Execution& each : executions) {
    took += CalibrationPasses::in_seconds(each.end - each.begin);
    would_take += seconds(alone.at(each.key));
  }
  return would_take > 0 ? took / would_take : 1.0;
}

struct Together {
  double transfer = 0;  // seconds of a round: one of each transfer
  double compute = 0;   // how many times as long operations took
};

// Operations beside transfers, and the transfers beside operations.
Together time_together(Communicator& communicator, CalibrationPasses& passes, const std::vector<QueuedCall*>& transfers,
                       std::int64_t rounds, const std::map<OpKey, Nanos>& operations) {
  std::vector<Execution> executions;
  meet(communicator);
  for (QueuedCall* const transfer : transfers) transfer->stream.start(transfer->call, rounds);
  while (!std::ranges::all_of(transfers, [](QueuedCall* transfer) { return transfer->stream.is_over(); })) {
    passes.run([&](const OpKey& key, Clock::time_point begin,
                   Clock::time_point end) { executions.push_back({key, begin, end}); },
               [] { return false; });
  }
  Clock::time_point begin = transfers[0]->stream.begin(), first_end = transfers[0]->stream.end(), end = first_end;
  for (QueuedCall* const transfer : transfers) {
    begin = std::max(begin, transfer->stream.begin());
    first_end = std::min(first_end, transfer->stream.end());
    end = std::max(end, transfer->stream.end());
  }
  std::erase_if(executions, [&](const Execution& each) { return each.begin < begin || each.end > first_end; });
  const double round = CalibrationPasses::in_seconds(end - begin) / static_cast<double>(rounds);
  const std::vector<double> means = mean_of_ranks(communicator, {round, times_as_long(executions, operations)});
  return {means[0], means[1]};
}

// Fewer thread blocks leave more of the device to compute, more of them move bytes faster.
std::int32_t choose_thread_blocks(Communicator& communicator, StreamCollectives& collectives, CollectiveStream& stream,
                                  Bytes bytes, CalibrationPasses& passes, Calibration& result) {
  std::deque<QueuedCall> candidates;
  for (const std::int32_t blocks : kThreadBlocks) candidates.emplace_back(stream, communicator, bytes, blocks);
  collectives.connect();
  const double transfers = transfers_of(passes.view().plan(), passes.view().rank_class(), bytes);
  const std::vector<double> step =
      mean_of_ranks(communicator, {passes.expected(result.operations, Nanos{0}), transfers});
  std::vector<TransferBeside> found;
  for (QueuedCall& candidate : candidates) {
    const double alone = candidate.alone(communicator);
    const Together beside =
        time_together(communicator, passes, {&candidate}, rounds_of(kPasses * step[0], alone), result.operations);
    found.push_back({.alone = alone,
                     .compute_slowdown = std::max(0.0, beside.compute - 1),
                     .transfer_slowdown = std::max(0.0, beside.transfer / alone - 1),
                     .thread_blocks = kThreadBlocks[found.size()]});
  }
  const std::size_t best = best_beside(found, step[0], step[1]);
  result.compute_slowdown = found[best].compute_slowdown;
  result.transfer_slowdown = found[best].transfer_slowdown;
  result.beside = std::move(found);
  return kThreadBlocks[best];
}

// Several transfers at once: how many times the bytes of one they move, and how much further they slow compute down.
// Both beside compute, as it is in a step.
void time_at_once(Communicator& communicator, CalibrationPasses& passes, std::deque<QueuedCall>& queues,
                  Calibration& result) {
  if (queues.size() < 2) return;
  std::vector<QueuedCall*> all;
  for (QueuedCall& queue : queues) all.push_back(&queue);
  const double alone = queues[0].alone(communicator);
  for (QueuedCall& queue : queues) queue.stream.seconds_of(queue.call, 1);
  const double pass = mean_of_ranks(communicator, {passes.expected(result.operations, Nanos{0})}).front();
  const std::int64_t rounds = rounds_of(kPasses * pass, alone);
  const Together one = time_together(communicator, passes, {all[0]}, rounds, result.operations);
  const Together several = time_together(communicator, passes, all, rounds, result.operations);
  const auto count = static_cast<double>(queues.size());
  result.library.at_once = std::clamp(count * one.transfer / several.transfer, 1.0, count);
  result.further_slowdown = std::max(0.0, (several.compute - one.compute) / (count - 1));
}

// A device works on a transfer from when its rank begins it, also while the other ranks are not there yet. Here ranks
// of even numbers begin it a few passes before the others, and then those of odd numbers.
double time_waiting(Communicator& communicator, CalibrationPasses& passes, QueuedCall& transfer,
                    const std::map<OpKey, Nanos>& operations) {
  constexpr int kPassesOfTheLate = 2;
  if (transfer.is_member) transfer.stream.seconds_of(transfer.call, 1);
  double slowdown = 0;
  for (const std::int64_t early : {0, 1}) {
    meet(communicator);
    const bool is_early = communicator.rank() % 2 == early;
    std::vector<Execution> executions;
    const auto keep = [&](const OpKey& key, Clock::time_point begin, Clock::time_point end) {
      executions.push_back({key, begin, end});
    };
    if (is_early && transfer.is_member) transfer.stream.start(transfer.call, 1);
    for (int pass = 0; pass < (is_early ? 1 : kPassesOfTheLate); ++pass) passes.run(keep, [] { return false; });
    if (!is_early && transfer.is_member) transfer.stream.start(transfer.call, 1);
    if (!transfer.is_member) continue;
    transfer.stream.wait();
    if (is_early) slowdown = std::max(0.0, times_as_long(executions, operations) - 1);
  }
  const std::vector<double> sums = sums_of_ranks(communicator, {slowdown, transfer.is_member ? 1.0 : 0.0});
  return sums[0] / sums[1];
}

// Rings of our own between all ranks.
class OwnRings {
 public:
  OwnRings(Communicator& communicator, CollectiveStream& stream, Bytes large, std::int32_t thread_blocks)
      : communicator_(communicator), stream_(stream), sizes_{std::min(kSmallest, large), large} {
    const auto ring = std::make_shared<const Program>(make_program({.algorithm = Algorithm::ring,
                                                                    .kind = Collective::all_reduce,
                                                                    .ranks = communicator.size(),
                                                                    .in_place = true}));
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      calls_[i] = stream_.prepare(ring, first_ranks(communicator.size()), sizes_[i], static_cast<std::int64_t>(i),
                                  thread_blocks);
    }
  }

  ProgramOverheads time(const LibraryLink& link) {
    std::array<TimedRing, 2> rings;
    for (std::size_t i = 0; i < rings.size(); ++i) {
      const auto mean_seconds = [&](std::int64_t rounds) {
        meet(communicator_);
        return mean_of_ranks(communicator_, {stream_.seconds_of(calls_[i], rounds)}).front();
      };
      mean_seconds(1);  // the first one does not count
      rings[i] = {sizes_[i], nanos_from_seconds(mean_seconds(rounds_of(kSecondsOfSize, mean_seconds(1))))};
    }
    return fit_rings(link, communicator_.size(), rings[0], rings[1]);
  }

 private:
  Communicator& communicator_;
  CollectiveStream& stream_;
  std::array<Bytes, 2> sizes_;
  std::array<std::size_t, 2> calls_{};
};

// Kernels of ranks that wait for each other need hardware queues of their own.
std::int64_t streams_at_once(const Communicator& communicator, const StreamCollectives& collectives) {
  if (!collectives.needs_rehearsal()) return kAtOnce;
  return std::clamp<std::int64_t>(kHardwareQueues / communicator.size() - kQueuesOfCompute, 1, kAtOnce);
}

}  // namespace

void measure_streams(Communicator& communicator, const Processor& processor, Bytes largest, CalibrationPasses& passes,
                     Calibration& result) {
  const Bytes bytes = std::min(kBesideCompute, largest);
  StreamCollectives& collectives = *processor.collectives;
  // All but several transfers at once is timed in the first one, because streams are few.
  std::deque<CollectiveStream> streams;
  for (std::int64_t queue = 0; queue < streams_at_once(communicator, collectives); ++queue) {
    streams.emplace_back(communicator, processor, kFirstQueue + queue, queue == 0 ? largest : bytes);
  }
  CollectiveStream& first = streams.front();
  const std::int32_t blocks = choose_thread_blocks(communicator, collectives, first, bytes, passes, result);
  const std::vector<TimedSize> sizes = prepare_sizes(passes.view(), largest, blocks, first);
  std::deque<QueuedCall> queues;
  for (CollectiveStream& stream : streams) queues.emplace_back(stream, communicator, bytes, blocks);
  const bool messages = has_messages(passes.view().plan().graph);
  QueuedCall awaited(first, communicator, bytes, blocks, messages ? Collective::send_recv : Collective::all_reduce,
                     messages ? 2 : communicator.size());
  std::optional<OwnRings> rings;
  const bool has_programs = passes.view().plan().cluster.execution.collectives == CollectiveMaker::programs;
  if (has_programs && communicator.size() > 1) rings.emplace(communicator, first, bytes, blocks);
  collectives.connect();
  result.library = time_sizes(communicator, sizes, first);
  result.library.thread_blocks = blocks;
  time_at_once(communicator, passes, queues, result);
  result.waiting_slowdown = time_waiting(communicator, passes, awaited, result.operations);
  const std::optional<LibraryLink> link = link_of(result.library);
  if (rings && link) result.programs = rings->time(*link);
}

}  // namespace weft
