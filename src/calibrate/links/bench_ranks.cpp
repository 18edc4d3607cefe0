#include "calibrate/links/bench_ranks.hpp"

#include <algorithm>
#include <thread>

#include "collective/algorithms.hpp"

namespace weft {
namespace {

constexpr std::int64_t kQueue = 1023;  // away from what is measured
constexpr std::size_t kTextSize = 64;

}  // namespace

PreparedCall call_between(const ProgramRequest& request, std::int64_t elements, ReduceOp op) {
  const auto program = std::make_shared<const Program>(make_program(request));
  return {program,
          program->spec,
          even_sizes(program->spec, elements),
          ElementType::i64,
          op,
          all_ranks(request.ranks),
          kQueue,
          "between measurements"};
}

Nanos median(std::vector<Nanos> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::vector<std::int64_t> all_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < count; ++rank) ranks.push_back(rank);
  return ranks;
}

void NetworkTimes::add(Clock::time_point began, Clock::time_point ended) {
  {
    const std::lock_guard lock(mutex_);
    executions_.push_back({began, ended});
  }
  added_.notify_all();
}

NetworkTimes::Execution NetworkTimes::take() {
  std::unique_lock lock(mutex_);
  added_.wait(lock, [&] { return !executions_.empty(); });
  const Execution first = executions_.front();
  executions_.pop_front();
  return first;
}

BenchRanks::BenchRanks(Communicator& communicator, bool processes, bool one_clock)
    : communicator_(communicator),
      processes_(processes),
      one_clock_(one_clock),
      barrier_(&communicator.prepare(call_between({.algorithm = Algorithm::recursive_doubling,
                                                   .kind = Collective::barrier,
                                                   .ranks = communicator.size(),
                                                   .in_place = true},
                                                  0))),
      broadcast_(&communicator.prepare(call_between({.algorithm = Algorithm::direct,
                                                     .kind = Collective::broadcast,
                                                     .ranks = communicator.size(),
                                                     .in_place = true},
                                                    kTextSize / 8))),
      gate_(one_clock ? &communicator.prepare(gate_call()) : nullptr) {}

// Every rank tells every other that it is there: by the links' clock, all know at the same moment, a latency after the
// last has come.
PreparedCall BenchRanks::gate_call() {
  PreparedCall call = call_between(
      {.algorithm = Algorithm::direct, .kind = Collective::barrier, .ranks = communicator_.size(), .in_place = true},
      0);
  call.on_done = [this](auto, auto) {
    try {
      started_.set_value(behind_gate_());
    } catch (...) {
      started_.set_exception(std::current_exception());
    }
  };
  return call;
}

void BenchRanks::run_at_once(Communicator::Prepared& call, const void* input, void* output) {
  started_ = {};
  behind_gate_ = [&] { return communicator_.start(call, input, output); };
  communicator_.wait(communicator_.start(*gate_, nullptr, nullptr));
  communicator_.wait(started_.get_future().get());
}

void BenchRanks::barrier() {
  communicator_.wait(communicator_.start(*barrier_, nullptr, nullptr));
}

void BenchRanks::begin_together() {
  if (processes_ && !communicator_.through_memory()) std::this_thread::sleep_for(std::chrono::nanoseconds(rest_.value));
  barrier();
}

std::vector<Nanos> BenchRanks::slowest(const std::vector<Nanos>& times) {
  std::vector<std::int64_t> values;
  for (const Nanos time : times) values.push_back(time.value);
  auto& call = communicator_.prepare(call_between({.algorithm = Algorithm::recursive_doubling,
                                                   .kind = Collective::all_reduce,
                                                   .ranks = communicator_.size(),
                                                   .in_place = true},
                                                  std::ssize(values), ReduceOp::max));
  communicator_.wait(communicator_.start(call, nullptr, values.data()));
  std::vector<Nanos> result;
  for (const std::int64_t value : values) result.push_back({value});
  return result;
}

std::vector<Nanos> BenchRanks::of_all(const RoundTimes& times) {
  std::vector<Nanos> begins = times.begins(), ends = times.ends();
  if (one_clock_) {
    begins = slowest(begins);
    ends = slowest(ends);
  }
  std::vector<Nanos> result;
  for (std::size_t i = 0; i < begins.size(); ++i) result.push_back(ends[i] - begins[i]);
  return one_clock_ ? result : slowest(result);
}

std::string BenchRanks::from_rank_0(const std::string& text) {
  std::array<char, kTextSize> buffer{};
  std::copy_n(text.begin(), std::min(text.size(), kTextSize - 1), buffer.begin());
  communicator_.wait(communicator_.start(*broadcast_, nullptr, buffer.data()));
  return buffer.data();
}

}  // namespace weft
