#include "cost/program_time.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "collective/algorithms.hpp"

namespace weft {
namespace {

// Links of 100 MB/s = 0.1 bytes a nanosecond, latency 50 us.
constexpr double kRate = 0.1;
constexpr double kLatency = 50'000;

double time_of(const ProgramRequest& request, std::int64_t bytes, const char* cluster_text = nullptr,
               const ProgramTimeOptions& options = {}) {
  const std::string text = fmt::format("local:{},nic=100MB/s", request.ranks);
  const Cluster cluster(parse_cluster(cluster_text == nullptr ? text : std::string(cluster_text)));
  const Program program = make_program(request);
  const SymbolicRun run = run_symbolically(program);
  EXPECT_FALSE(run.violation);
  std::vector<Rank> members;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) members.push_back(make_id<Rank>(rank));
  const auto lowered = lower(program, run, even_sizes(program.spec, bytes / 4), Bytes{4});
  return static_cast<double>(program_time(lowered, cluster, members, options).value);
}

TEST(ProgramTime, RingAllReduceIsTheClosedForm) {
  // 2 (N-1) hops one after the other, each latency + K/N over the link.
  for (const std::int64_t ranks : {2, 3, 4, 8}) {
    const auto n = static_cast<double>(ranks);
    const double bytes = 24 * 100'000;
    const double expected = 2 * (n - 1) * (kLatency + bytes / n / kRate);
    EXPECT_NEAR(time_of({.ranks = ranks, .in_place = true}, 24 * 100'000), expected, 100) << ranks;
  }
}

TEST(ProgramTime, PartsOfARingHideTheLatency) {
  // With p parts the link of every rank is busy from one message to the next: 2 (N-1) p messages of K/(N p), and only
  // what the first part waits for shows. A hop of one part takes latency + its bytes; the next part of the previous hop
  // is already there if p parts take longer than that: one latency in all, plus none in between.
  const double bytes = 24 * 100'000;
  const double expected = kLatency + 2 * 3 * (bytes / 4 / kRate);
  const double measured = time_of({.ranks = 4, .parts = 4, .in_place = true}, 24 * 100'000);
  EXPECT_GE(measured, expected - 100);
  EXPECT_LE(measured, expected + 6 * kLatency);
  EXPECT_LT(measured, time_of({.ranks = 4, .in_place = true}, 24 * 100'000));
}

TEST(ProgramTime, DirectAllToAllSharesTheLinkOfEveryRank) {
  // N-1 messages of K/N at once out of every rank and into every rank: (N-1) K/N over the link, one latency.
  const double bytes = 4 * 100'000;
  EXPECT_NEAR(time_of({.algorithm = Algorithm::direct, .kind = Collective::all_to_all, .ranks = 4}, 4 * 100'000),
              kLatency + 3 * bytes / 4 / kRate, 100);
}

// 20 kB take 0.2 ms over the link and 20 ms at the 1 MB/s of a rank that copies, or reduces, so slowly.
TEST(ProgramTime, OverTcpARanksOwnCopiesAndReductionsTakeWhatTheyWereMeasuredToTake) {
  const ProgramRequest gather{.algorithm = Algorithm::direct, .kind = Collective::all_gather, .ranks = 2};
  const ProgramRequest reduce{
      .algorithm = Algorithm::direct, .kind = Collective::reduce_scatter, .ranks = 2, .in_place = true};
  const Bandwidth slow{1e6};
  EXPECT_LT(time_of(gather, 40'000, nullptr, {.tcp = TcpTraffic{.reductions = slow}}), 1e6);
  EXPECT_NEAR(time_of(gather, 40'000, nullptr, {.tcp = TcpTraffic{.copies = slow}}), 20e6, 1e6);
  EXPECT_LT(time_of(reduce, 40'000, nullptr, {.tcp = TcpTraffic{.copies = slow}}), 1e6);
  EXPECT_NEAR(time_of(reduce, 40'000, nullptr, {.tcp = TcpTraffic{.reductions = slow}}), 20e6, 1e6);
}

// Two messages from rank 0 and one from rank 2 meet at rank 1, which passes on the latter. Channels of two ranks are
// one connection, so each sender has half of the link: the third message is there when two would be, and passed on when
// all three are. With a connection for each channel it would be there last.
TEST(ProgramTime, OverTcpChannelsShareAConnection) {
  constexpr std::int64_t kBytes = 10'000'000;
  const auto step = [](InstructionKind kind, std::int64_t peer, std::int64_t channel, std::vector<std::int32_t> waits) {
    LoweredStep result;
    result.kind = kind;
    result.peer = peer;
    result.channel = channel;
    result.bytes = kBytes;
    result.waits = std::move(waits);
    return result;
  };
  std::vector<LoweredRank> program(4);
  program[0].steps = {step(InstructionKind::send, 1, 0, {}), step(InstructionKind::send, 1, 1, {})};
  program[1].steps = {step(InstructionKind::receive, 0, 0, {}), step(InstructionKind::receive, 0, 1, {}),
                      step(InstructionKind::receive, 2, 0, {}), step(InstructionKind::send, 3, 0, {2})};
  program[2].steps = {step(InstructionKind::send, 1, 0, {})};
  program[3].steps = {step(InstructionKind::receive, 1, 0, {})};
  const Cluster cluster(parse_cluster("local:4,nic=100MB/s"));
  const std::vector<Rank> members = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
  const Nanos time = program_time(program, cluster, members, {.tcp = TcpTraffic{}});
  EXPECT_NEAR(static_cast<double>(time.value), 3 * kBytes / kRate, 0.03 * kBytes / kRate);
}

TEST(ProgramTime, SlowdownStretchesEverything) {
  const ProgramRequest request{.ranks = 4, .in_place = true};
  EXPECT_NEAR(time_of(request, 40'000, nullptr, {.slowdown = 5}), 5 * time_of(request, 40'000), 100);
}

TEST(ProgramTime, LocalCopiesTakeTimeWhereTheyAreCounted) {
  // One rank: 4000 bytes are read and written, at the 10 bytes a nanosecond of the device; those of a slowed machine.
  EXPECT_NEAR(time_of({.ranks = 1}, 4000, nullptr, {.own_work = true}), 800, 1);
  EXPECT_NEAR(time_of({.ranks = 1}, 4000, nullptr, {.slowdown = 3, .own_work = true}), 2400, 1);
}

TEST(ProgramTime, FastLinksInsideANodeCarryTheInnerPart) {
  // 2 nodes of 4: the hierarchical all_reduce sends 1/4 of the buffer from each rank over the NIC, a flat ring's hops
  // all wait for the NIC.
  const ProgramRequest ring{.ranks = 8, .in_place = true};
  const ProgramRequest two_levels{.algorithm = Algorithm::hierarchical, .ranks = 8, .in_place = true, .inner = 4};
  const char* cluster = "dgx-a100:2,gpus=4,nic=10GB/s";
  EXPECT_LT(time_of(two_levels, 64 << 20, cluster), time_of(ring, 64 << 20, cluster));
}

}  // namespace
}  // namespace weft
