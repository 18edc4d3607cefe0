#include "comm/nccl/program_rounds.hpp"

#include <map>
#include <tuple>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int64_t kScratchAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

bool is_receive(const LoweredStep& step) {
  return step.kind == InstructionKind::receive || step.kind == InstructionKind::receive_reduce_copy;
}

// When a step runs. Messages of a round come before its work; no message runs in round 0.
struct StepTime {
  std::int64_t arrives = 0;  // of messages: their round
  std::int64_t ends = 0;     // the round after which its result is there
  std::int64_t wave = -1;    // its place in the work of that round; -1: it is a message alone
};

class Timing {
 public:
  explicit Timing(const std::vector<LoweredRank>& program) : program_(program), times_(program.size()) {
    std::vector<std::size_t> next(program.size(), 0);
    // The steps of all ranks have an order in which they can run one by one, so some rank can always go on.
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < program.size(); ++rank) {
        while (next[rank] < program[rank].steps.size() && add(static_cast<std::int64_t>(rank), next[rank])) {
          ++next[rank];
          moved = true;
        }
      }
    }
    for (std::size_t rank = 0; rank < program.size(); ++rank) WEFT_CHECK(next[rank] == program[rank].steps.size());
  }

  const StepTime& of(std::int64_t rank, std::size_t step) const { return times_[rank][step]; }

 private:
  using Connection = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // sender, receiver, channel

  // False where it receives what has not been sent yet.
  bool add(std::int64_t rank, std::size_t index) {
    const LoweredStep& step = program_[rank].steps[index];
    StepTime time;
    if (step.kind == InstructionKind::send) {
      time.arrives = time.ends = 1 + last_end(rank, step);
      sent_[{rank, step.peer, step.channel}].push_back(time.arrives);
    } else if (is_receive(step)) {
      const Connection from{step.peer, rank, step.channel};
      const std::size_t number = received_[from];
      if (number == sent_[from].size()) return false;
      ++received_[from];
      time.arrives = sent_[from][number];
      time.ends = std::max(time.arrives, last_end(rank, step));
      const bool is_free = last_end(rank, step) < time.arrives;
      if (step.kind != InstructionKind::receive || !is_free) time.wave = first_wave(rank, step, time.ends);
    } else {
      time.ends = last_end(rank, step);
      time.wave = first_wave(rank, step, time.ends);
    }
    times_[rank].push_back(time);
    return true;
  }

  std::int64_t last_end(std::int64_t rank, const LoweredStep& step) const {
    std::int64_t last = 0;
    for (const std::int32_t other : step.waits) last = std::max(last, times_[rank][other].ends);
    return last;
  }

  std::int64_t first_wave(std::int64_t rank, const LoweredStep& step, std::int64_t round) const {
    std::int64_t wave = 0;
    for (const std::int32_t other : step.waits) {
      if (times_[rank][other].ends == round) wave = std::max(wave, times_[rank][other].wave + 1);
    }
    return wave;
  }

  const std::vector<LoweredRank>& program_;
  std::vector<std::vector<StepTime>> times_;  // by rank and step
  std::map<Connection, std::vector<std::int64_t>> sent_;
  std::map<Connection, std::size_t> received_;
};

// Memory in which messages wait for their work: the lowest place that no other uses at the same time.
class LandingPlaces {
 public:
  explicit LandingPlaces(std::int64_t begin) : begin_(aligned(begin)), end_(begin) {}

  // From one round to another, both included.
  ByteRange take(std::int64_t bytes, std::int64_t from, std::int64_t to) {
    std::int64_t at = begin_;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Taken& other : taken_) {
        const bool together = other.from <= to && from <= other.to;
        if (!together || other.end <= at || at + bytes <= other.begin) continue;
        at = aligned(other.end);
        moved = true;
      }
    }
    taken_.push_back({at, at + bytes, from, to});
    end_ = std::max(end_, at + bytes);
    return {BufferKind::scratch, at, bytes};
  }
  std::int64_t end() const { return end_; }

 private:
  struct Taken {
    std::int64_t begin = 0, end = 0, from = 0, to = 0;
  };
  std::int64_t begin_, end_;
  std::vector<Taken> taken_;
};

RoundWork work_of(const LoweredStep& step, std::vector<ByteRange> from) {
  RoundWork work{.to = step.dst, .from = std::move(from), .operand = {}, .completes = step.completes};
  if (step.kind == InstructionKind::reduce) work.operand = step.dst;
  if (step.kind == InstructionKind::receive_reduce_copy) work.operand = step.src;
  return work;
}

}  // namespace

RankRounds rounds_of(const std::vector<LoweredRank>& program, std::int64_t rank) {
  const Timing timing(program);
  const std::vector<LoweredStep>& steps = program[rank].steps;
  LandingPlaces places(program[rank].scratch_bytes);
  RankRounds result;
  const auto round = [&](std::int64_t number) -> ProgramRound& {
    if (number >= std::ssize(result.rounds)) result.rounds.resize(number + 1);
    return result.rounds[number];
  };
  const auto add_work = [&](const StepTime& time, RoundWork work) {
    auto& waves = round(time.ends).work;
    if (time.wave >= std::ssize(waves)) waves.resize(time.wave + 1);
    waves[time.wave].push_back(std::move(work));
  };
  // By peer, whether it is sent, channel, and then as the connection has them.
  std::map<std::tuple<std::int64_t, bool, std::int64_t>, std::vector<std::size_t>> messages;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const LoweredStep& step = steps[i];
    if (step.bytes == 0) continue;
    const bool sends = step.kind == InstructionKind::send;
    if (sends || is_receive(step)) {
      messages[{step.peer, sends, step.channel}].push_back(i);
    } else {
      add_work(timing.of(rank, i), work_of(step, step.src));
    }
  }
  for (const auto& [connection, numbers] : messages) {
    for (const std::size_t i : numbers) {
      const LoweredStep& step = steps[i];
      const StepTime& time = timing.of(rank, i);
      const bool sends = step.kind == InstructionKind::send;
      RoundMessage message{step.peer, sends ? step.src : step.dst, step.bytes};
      if (time.wave >= 0) {
        message.ranges = {places.take(step.bytes, time.arrives, time.ends)};
        add_work(time, work_of(step, message.ranges));
      }
      auto& of_round = round(time.arrives);
      (sends ? of_round.sends : of_round.receives).push_back(std::move(message));
    }
  }
  result.scratch_bytes = places.end();
  return result;
}

}  // namespace weft
