#include "calibrate/links/stream_probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/error.hpp"
#include "calibrate/links/burst_probe.hpp"
#include "calibrate/links/probe_door.hpp"
#include "collective/algorithms.hpp"
#include "comm/tcp/socket.hpp"

namespace weft {
namespace {

using tcp::Clock;

constexpr std::chrono::milliseconds kStreamTime{1200};
// These bytes do not count: slow start and a token bucket's burst change their rate.
constexpr std::int64_t kWarmUpBytes = 1 << 20;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 31;
constexpr int kPings = 50;
// A stream that breaks off or stands still is left alone: the barrier after it names the rank that is to blame.
constexpr std::chrono::seconds kMaxStandstill{2};

// On rank 0: returns the bytes a second after the warm-up; 0 where nothing came.
double receive_stream(ProbeDoor& door) {
  const tcp::Socket stream = door.admit();
  if (!stream) return 0;
  std::vector<std::byte> buffer(1 << 20);
  std::int64_t bytes = 0, counted = 0;
  Clock::time_point begin{}, end{};
  while (tcp::wait_for(stream, POLLIN, Clock::now() + kMaxStandstill)) {
    const ssize_t got = ::recv(stream.fd(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) break;
    const Clock::time_point now = Clock::now();
    if (bytes < kWarmUpBytes && bytes + got >= kWarmUpBytes) {
      begin = now;
    } else if (bytes >= kWarmUpBytes) {
      counted += got;
      end = now;
    }
    bytes += got;
  }
  if (counted == 0) return 0;
  return static_cast<double>(counted) / std::chrono::duration<double>(end - begin).count();
}

// On rank 1.
void send_stream(const ProbeDoor& door) {
  const tcp::Socket stream = door.enter();
  if (!stream) return;
  const std::vector<std::byte> buffer(256 << 10);
  const Clock::time_point end = Clock::now() + kStreamTime;
  std::int64_t sent = 0;
  while (Clock::now() < end && sent < kMaxBytes) {
    if (!tcp::wait_for(stream, POLLOUT, end)) break;
    const ssize_t wrote = ::send(stream.fd(), buffer.data(), buffer.size(), MSG_NOSIGNAL);
    if (wrote > 0) sent += wrote;
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) return;
  }
}

// Returns half the median time of a message there and back.
Nanos measure_latency(Communicator& communicator) {
  const auto message = [&](std::int64_t sender) -> Communicator::Prepared& {
    const auto program = std::make_shared<const Program>(
        make_program({.algorithm = Algorithm::direct, .kind = Collective::send_recv, .ranks = 2, .root = sender}));
    return communicator.prepare(
        {program, program->spec, even_sizes(program->spec, 1), ElementType::i64, ReduceOp::sum, {0, 1}, 1022, "ping"});
  };
  auto &there = message(0), &back = message(1);
  std::vector<Nanos> times;
  std::int64_t sent = 1, received = 0;
  for (int i = 0; i < kPings; ++i) {
    const Clock::time_point begin = Clock::now();
    const bool first = communicator.rank() == 0;
    communicator.wait(communicator.start(there, first ? &sent : nullptr, first ? nullptr : &received));
    communicator.wait(communicator.start(back, first ? nullptr : &sent, first ? &received : nullptr));
    times.push_back({std::chrono::nanoseconds(Clock::now() - begin).count() / 2});
  }
  std::nth_element(times.begin(), times.begin() + kPings / 2, times.end());
  return times[kPings / 2];
}

}  // namespace

MeasuredLink measure_link(Communicator& communicator, BenchRanks& ranks) {
  const std::int64_t rank = communicator.rank();
  ProbeDoor door(rank, ranks);
  double goodput = 0;
  ranks.barrier();
  if (rank == 0) goodput = receive_stream(door);
  if (rank == 1) send_stream(door);
  ranks.barrier();
  if (rank == 0 && goodput <= 0)
    throw RunFailed(fmt::format("no TCP stream from rank 1 reached rank 0 at {}", door.address()));
  Bytes burst;
  if (rank == 0) burst = ask_for_bursts(door, goodput);
  if (rank == 1) answer_in_bursts(door);
  ranks.barrier();
  Nanos latency;
  if (rank <= 1) latency = measure_latency(communicator);
  const auto agreed = ranks.slowest({Nanos{static_cast<std::int64_t>(goodput)}, latency, Nanos{burst.value}});
  return {static_cast<double>(agreed[0].value), agreed[1], Bytes{agreed[2].value}};
}

}  // namespace weft
