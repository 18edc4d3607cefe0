#include "collective/synthesis/program_family.hpp"

#include <gtest/gtest.h>

#include <set>

#include "cluster/topology_cuts.hpp"
#include "cluster/topology_presets.hpp"
#include "cluster/topology_way.hpp"
#include "collective/synthesis/list_schedule.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

constexpr Bandwidth kFast{10e9}, kSlow{1e9};

// Devices 0 - 1 - 2 - 3 in a line.
Topology line_of_four() {
  Topology line;
  line.name = "line";
  for (const char* name : {"a", "b", "c", "d"}) line.add({.name = name, .node = 0});
  for (std::int32_t i = 0; i < 3; ++i) line.connect(i, i + 1, kFast, Nanos{1000});
  return line;
}

class Families : public ::testing::TestWithParam<const char*> {};

// The verifier shares no code with the schedules.
TEST_P(Families, EveryMemberIsProven) {
  const Topology topology = parse_topology(GetParam());
  for (const Collective kind :
       {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce, Collective::all_to_all}) {
    for (const bool in_place : {false, true}) {
      const auto family = program_family(topology, {kind, in_place, 1 << 20});
      EXPECT_EQ(family.empty(), kind == Collective::all_to_all && in_place);
      for (const FamilyMember& member : family) {
        EXPECT_EQ(member.program.spec.kind, kind);
        EXPECT_EQ(member.program.in_place, in_place);
        const ProgramVerdict verdict = verify_program(member.program);
        EXPECT_TRUE(verdict.accepted()) << member.name << ", " << name_of(kind) << ": " << verdict.words();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Wirings, Families, ::testing::Values("dgx1-v100", "dgx-a100:1", "mi250", "dgx1-v100:2"));

// Ranks may lie on devices in any order. Adapters of two nodes then have no direct way to those of the same number, so
// what goes through gateways alone would not arrive.
TEST(ProgramFamily, EveryMemberIsProvenWhateverTheOrderOfTheDevices) {
  const Topology topology = parse_topology("dgx-a100:2");
  for (const bool turned : {false, true}) {
    std::vector<Rank> order;
    for (std::int32_t i = 0; i < 16; ++i) order.push_back(Rank{turned ? (i * 5 + 3) % 16 : i});
    if (!turned) std::swap(order[0], order[1]);
    const Topology wiring = between_ranks(topology, order);
    for (const Collective kind : {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce}) {
      for (const double bytes : {2.0, 1e5}) {
        const auto family = program_family(wiring, {kind, true, bytes});
        EXPECT_FALSE(family.empty());
        for (const FamilyMember& member : family) {
          const ProgramVerdict verdict = verify_program(member.program);
          EXPECT_TRUE(verdict.accepted()) << member.name << ", " << name_of(kind) << ": " << verdict.words();
        }
      }
    }
  }
}

// Two nodes of two devices; d0 and d2 may cross. By hand, with chunks of 10 kB: every chunk crosses once, over them.
TEST(ListSchedule, GatewaysAloneCrossBetweenNodes) {
  Topology pair{"two nodes", {}, {}};
  const std::int32_t hub = pair.add({.name = "hub", .kind = VertexKind::network_switch});
  for (std::int32_t i = 0; i < 4; ++i) {
    pair.connect(pair.add({.name = "d" + std::to_string(i), .node = i / 2}), hub, kSlow, Nanos{1000});
  }
  pair.connect(1, 2, kFast, Nanos{1000});
  pair.connect(3, 4, kFast, Nanos{1000});
  const auto messages = schedule_to_all(pair, {0, 1, 2, 3}, 10e3, {.once = true, .gateways = 1});
  EXPECT_EQ(messages.size(), 4u * 3u);
  std::multiset<std::int64_t> crossed;
  for (const ScheduledMessage& m : messages) {
    if (m.from / 2 == m.to / 2) continue;
    EXPECT_EQ(m.from % 2, 0);
    EXPECT_EQ(m.to % 2, 0);
    crossed.insert(m.chunk);
  }
  EXPECT_EQ(crossed, (std::multiset<std::int64_t>{0, 1, 2, 3}));
}

// By hand: with chunks of 10 kB (1 us on a link) and latencies of 1 us, what rank 0 sends is at rank 1 after 2 us, at
// rank 2 after 4 and at rank 3 after 6. The same from the other end, and nothing is in the way but the middle link's
// own traffic: both directions are links of their own. The link 1 -> 2 carries chunk 1 first (0 to 1), then chunk 0.
TEST(ListSchedule, KeepsToCausesOnALine) {
  const auto messages = schedule_to_all(line_of_four(), {0, 1, 2, 3}, 10e3);
  EXPECT_EQ(messages.size(), 4u * 3u);  // every chunk reaches three ranks once
  std::vector<std::vector<double>> has(4, std::vector<double>(4, -1));
  for (int r = 0; r < 4; ++r) has[r][r] = 0;
  double last = 0;
  for (const ScheduledMessage& m : messages) {
    ASSERT_GE(has[m.chunk][m.from], 0) << "chunk " << m.chunk << " is sent by " << m.from << " before it is there";
    EXPECT_GE(m.start, has[m.chunk][m.from] - 1e-12);
    EXPECT_LT(has[m.chunk][m.to], 0) << "chunk " << m.chunk << " arrives twice";
    has[m.chunk][m.to] = m.arrival;
    last = std::max(last, m.arrival);
  }
  EXPECT_NEAR(last, 6e-6, 1e-9);
}

// Three ranks in a triangle; the link 0 -> 1 is ten times slower than the others, so that with large chunks what rank 0
// has for rank 1 goes through rank 2.
TEST(ListSchedule, AllToAllGoesAroundASlowLink) {
  Topology triangle;
  triangle.name = "triangle";
  for (const char* name : {"a", "b", "c"}) triangle.add({.name = name, .node = 0});
  triangle.connect(0, 2, kFast, Nanos{100});
  triangle.connect(2, 1, kFast, Nanos{100});
  triangle.connect_one_way(0, 1, kSlow, Nanos{100});
  triangle.connect_one_way(1, 0, kFast, Nanos{100});
  std::set<std::pair<std::int32_t, std::int32_t>> hops;
  for (const ScheduledMessage& m : schedule_all_to_all(triangle, 1, 1e6)) {
    if (m.chunk == 1) hops.insert({m.from, m.to});  // from 0 to 1
  }
  EXPECT_EQ(hops, (std::set<std::pair<std::int32_t, std::int32_t>>{{0, 2}, {2, 1}}));
}

}  // namespace
}  // namespace weft
