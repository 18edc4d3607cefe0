#include "cost/program_cost.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/presets.hpp"
#include "collective/algorithms.hpp"
#include "cost/choose_program.hpp"
#include "cost/cost_model.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

constexpr Nanos kLatency{50'000};  // of local's links
constexpr std::int64_t kBuffer = 64 << 20;

// Data parallelism over all ranks of a cluster.
struct Case {
  Cluster cluster;
  StepGraph graph;
  CostModel cost;
  explicit Case(ClusterSpec spec, std::int64_t tp = 1, const Profile& profile = default_profile())
      : cluster(std::move(spec)),
        graph(build_step_graph(model_preset("megatron-1.7b"), cluster, layout(tp))),
        cost(graph, cluster, profile) {}
  explicit Case(const char* text) : Case(parse_cluster(text)) {}

  Layout layout(std::int64_t tp) const {
    Layout l;
    l.tp = tp;
    l.dp = l.global_batch = cluster.device_count() / tp;
    l.seq = 2048;
    return l;
  }

  // A reduction of the graph, made into another collective of so many bytes.
  Operation transfer(Collective collective, std::int64_t bytes) const {
    const auto found = std::find_if(graph.operations.begin(), graph.operations.end(),
                                    [](const Operation& op) { return op.role == Role::grad_reduce; });
    Operation op = *found;
    op.communication->collective = collective;
    op.communication->bytes = Bytes{bytes};
    return op;
  }
  Operation chosen(Collective collective, std::int64_t bytes) const {
    Operation op = transfer(collective, bytes);
    EXPECT_TRUE(cost.choose_program(op));
    return op;
  }
};

double seconds_of(std::int64_t latencies, double bytes) {
  return seconds(kLatency * latencies) + bytes / 125e6;
}

TEST(EmulatedTransfer, OfARingIsTwiceNMinusOneLatenciesAndTwiceNMinusOneOverNBytes) {
  for (const char* text : {"local:2,nic=1Gb/s", "local:4,nic=1Gb/s", "local:8,nic=1Gb/s"}) {
    const Case c(text);
    const auto n = c.cluster.device_count();
    const TransferCost cost = c.cost.transfer(c.transfer(Collective::all_reduce, kBuffer));
    const double sent = 2.0 * static_cast<double>(n - 1) / static_cast<double>(n) * kBuffer;
    EXPECT_NEAR(seconds(cost.alone()), seconds_of(2 * (n - 1), sent), 1e-9 * static_cast<double>(2 * n)) << text;
    EXPECT_NEAR(cost.bandwidth_seconds(), sent / 125e6, 1e-12) << text;
  }
}

// Everybody to everybody at once: one latency, and the least bytes that any of them sends. Nothing is faster; a ring in
// parts, whose later latencies hide behind the parts before, is as fast.
TEST(ChosenProgram, OfAGatherOverEvenLinksIsOneLatencyAndTheLeastBytes) {
  for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    const Case c("local:8,nic=1Gb/s");
    const Operation op = c.chosen(collective, kBuffer);
    EXPECT_NEAR(seconds(c.cost.alone(op)), seconds_of(1, 7.0 / 8 * kBuffer), 2e-9) << name_of(collective);
  }
}

// The sum of the first part can go out while the second still comes in: all latencies but the first hide.
TEST(ChosenProgram, OfALargeReductionComesWithinTwoLatenciesOfTheLeastBytes) {
  for (const char* text : {"local:2,nic=1Gb/s", "local:3,nic=1Gb/s", "local:8,nic=1Gb/s"}) {
    const Case c(text);
    const auto n = static_cast<double>(c.cluster.device_count());
    const double time = seconds(c.cost.alone(c.chosen(Collective::all_reduce, 3 * kBuffer)));
    const double sent = 2 * (n - 1) / n * 3 * kBuffer;
    EXPECT_GE(time, seconds_of(1, sent) - 1e-9) << text;
    EXPECT_LE(time, seconds_of(2, sent) + 1e-6) << text;
  }
}

// 64 bytes over 8 ranks: every input to everybody takes one latency, (N-1) K bytes.
TEST(ChosenProgram, OfASmallReductionIsOneMessageLong) {
  const Case c("local:8,nic=1Gb/s");
  const Operation op = c.chosen(Collective::all_reduce, 64);
  EXPECT_EQ(op.communication->algorithm, Algorithm::direct);
  EXPECT_NEAR(seconds(c.cost.alone(op)), seconds_of(1, 7 * 64), 2e-9);
}

TEST(ChosenProgram, IsNotBeatenByAnyOther) {
  const Case c("local:6,nic=10Gb/s");
  for (const std::int64_t bytes : {std::int64_t{4}, std::int64_t{100'000}, std::int64_t{10'000'000}}) {
    Operation op = c.chosen(Collective::all_reduce, bytes);
    const Nanos best = c.cost.alone(op);
    for (const Algorithm algorithm : algorithms_for(Collective::all_reduce)) {
      if (algorithm == Algorithm::hierarchical) continue;  // each rank is a node of its own
      for (const std::int32_t parts : {1, 2, 4}) {
        op.communication->algorithm = algorithm;
        op.communication->parts = parts;
        if (parts * 6 * (16 << 10) > bytes && parts > 1) continue;  // finer than what is tried
        EXPECT_LE(seconds(best), 1.00001 * seconds(c.cost.alone(op)) + 2e-9) << name_of(algorithm) << " of " << bytes;
      }
    }
  }
}

TEST(ChosenProgram, GoesByNodesWhereTheyAreFastInside) {
  ClusterSpec spec = parse_cluster("dgx-a100:4,nic=10GB/s");
  spec.execution = kEmulation;
  const Case c(spec);
  const Operation op = c.chosen(Collective::all_reduce, 4 * kBuffer);
  EXPECT_EQ(op.communication->algorithm, Algorithm::hierarchical);
  EXPECT_EQ(op.communication->inner, 8);
}

// A run on GPUs: links as measured, collectives of a library. The ring of 8 ranks moves 2 * 7/8 of the buffer over a
// link at the stated rate, whatever share of it the profile says that nominal links reach.
TEST(TransferCost, MeasuredLinksReachWhatIsStatedUnderALibrarysCollectives) {
  ClusterSpec spec = parse_cluster("dgx-a100:1");
  spec.execution.links = LinkTiming::measured;
  const Case c(spec);
  const Operation op = c.transfer(Collective::all_reduce, kBuffer);
  EXPECT_FALSE(shared_program_costs(Cluster(spec), default_profile()));
  EXPECT_DOUBLE_EQ(c.cost.transfer(op).bandwidth_seconds(), 2 * 7.0 / 8 * kBuffer / 300e9);
}

// The library was measured to need 10 us for the smallest size and 110 us for this one: 10 us of latency, in which no
// bytes move, and 100 us in which the links are busy.
TEST(TransferCost, IsWhatWasMeasuredOfALibrary) {
  ClusterSpec spec = parse_cluster("dgx-a100:1");
  spec.execution.links = LinkTiming::measured;
  Profile profile = default_profile();
  profile.library.measured[{Collective::all_reduce, 8}] = {{Bytes{1024}, Nanos{10'000}},
                                                           {Bytes{kBuffer}, Nanos{110'000}}};
  const Case c(spec, 1, profile);
  const TransferCost cost = c.cost.transfer(c.transfer(Collective::all_reduce, kBuffer));
  EXPECT_EQ(cost.latency, Nanos{10'000});
  EXPECT_DOUBLE_EQ(cost.bandwidth_seconds(), 100e-6);
  // Two at once move 1.6 times the bytes of one: each alone leaves the links free for 3/8 of its time.
  profile.library.at_once = 1.6;
  const Case shared(spec, 1, profile);
  const TransferCost half = shared.cost.transfer(shared.transfer(Collective::all_reduce, kBuffer));
  EXPECT_DOUBLE_EQ(half.bandwidth_seconds(), 62.5e-6);
  EXPECT_EQ(half.alone(), Nanos{110'000});
  // Nothing is known of gathers: the closed form.
  EXPECT_DOUBLE_EQ(c.cost.transfer(c.transfer(Collective::all_gather, kBuffer)).bandwidth_seconds(),
                   7.0 / 8 * kBuffer / 300e9);
}

// Ranks with unequal adapters are two classes; together they take the program's time, although their links need
// different times for their bytes. A program that spares the slow adapter is still charged what bounds assume of every
// rank: 2 (N-1)/N of the buffer.
TEST(EmulatedTransfer, AcrossClassesTakesTheTimeOfItsProgram) {
  ClusterSpec spec = parse_cluster("local:4,nic=1Gb/s");
  spec.overrides.push_back({.node = 1, .level = "nic", .bandwidth = Bandwidth{50e6}, .latency = {}, .device = {}});
  Case c(spec);
  choose_algorithms(c.graph, c.cost);
  ASSERT_EQ(c.graph.classes.size(), 2u);
  std::map<std::int32_t, std::vector<const Operation*>> transfers;
  for (const Operation& op : c.graph.operations) {
    if (op.communication) transfers[op.communication->transfer].push_back(&op);
  }
  for (const auto& [number, members] : transfers) {
    ASSERT_EQ(members.size(), 2u);
    const Communication& a = *members[0]->communication;
    const Communication& b = *members[1]->communication;
    EXPECT_EQ(std::tie(a.algorithm, a.parts, a.inner), std::tie(b.algorithm, b.parts, b.inner));
    const ProgramQuestion question{.kind = a.collective,
                                   .elements = a.bytes.value / size_of(members[0]->key.dtype).value,
                                   .element_size = size_of(members[0]->key.dtype),
                                   .members = {Rank{0}, Rank{1}, Rank{2}, Rank{3}}};
    const auto program = with_parts(a.algorithm, a.parts, question, c.cluster);
    const TransferCost both = joined(c.cost.transfer(*members[0]), c.cost.transfer(*members[1]));
    const double least = 2 * 0.75 * static_cast<double>(a.bytes.value) / 50e6;
    EXPECT_NEAR(seconds(both.alone()), std::max(seconds(program->time), least), 2e-9) << describe(*members[0]);
  }
}

TEST(EmulatedTransfer, NeverUsesALinkLessThanBoundsAssume) {
  ClusterSpec two_levels = parse_cluster("dgx-a100:2");
  two_levels.execution = kEmulation;
  for (const ClusterSpec& spec : {parse_cluster("local:8"), parse_cluster("local:6"), two_levels}) {
    Case c(spec, 2);
    std::vector<TransferCost> rings;
    for (const Operation& op : c.graph.operations)
      rings.push_back(op.communication ? c.cost.transfer(op) : TransferCost{});
    choose_algorithms(c.graph, c.cost);
    for (std::size_t i = 0; i < c.graph.operations.size(); ++i) {
      const Operation& op = c.graph.operations[i];
      if (!op.communication) continue;
      const TransferCost actual = c.cost.transfer(op), least = c.cost.least_transfer(op);
      for (std::size_t w = 0; w < least.work.size(); ++w) {
        double ring = 0, own = 0;
        for (const LinkWork& work : rings[i].work) ring += work.resource == least.work[w].resource ? work.seconds : 0;
        for (const LinkWork& work : actual.work) own += work.resource == least.work[w].resource ? work.seconds : 0;
        EXPECT_LE(std::min(least.work[w].seconds, ring), own * (1 + 1e-12)) << spec.name << " " << describe(op);
      }
    }
  }
}

TEST(ChosenProgram, IsLeftToClosedFormsForLargeGroupsMessagesAndRealClusters) {
  Case large("local:65");
  Operation op = large.transfer(Collective::all_reduce, kBuffer);
  EXPECT_FALSE(large.cost.choose_program(op));
  EXPECT_NEAR(seconds(large.cost.alone(op)), seconds_of(128, 2.0 * 64 / 65 * kBuffer), 2e-9);
  Case real("dgx-a100:1");
  op = real.transfer(Collective::all_reduce, kBuffer);
  EXPECT_FALSE(real.cost.choose_program(op));
  Case small("local:4");
  op = small.transfer(Collective::all_reduce, std::int64_t{1} << 61);  // 580 years
  EXPECT_FALSE(small.cost.choose_program(op));
}

// Four ranks send 1.5 times the buffer each, at 125 MB/s. Of 4 MiB the library is measured to need half of that time,
// of 16 MiB twice.
TEST(ChosenProgram, IsTheLibrarysOwnWhereThatWasMeasuredToBeFaster) {
  Profile profile = default_profile();
  const Nanos ring_of_8 = nanos_from_seconds(1.5 * 8388608 / 125e6);
  profile.library.measured[{Collective::all_reduce, 4}] = {{Bytes{4 << 20}, Nanos{ring_of_8.value / 4}},
                                                           {Bytes{16 << 20}, Nanos{ring_of_8.value * 4}}};
  const auto algorithm = [](const Case& c, Collective collective, std::int64_t bytes) {
    return c.chosen(collective, bytes).communication->algorithm;
  };
  const Case c(parse_cluster("local:4,nic=1Gb/s"), 1, profile);
  EXPECT_EQ(algorithm(c, Collective::all_reduce, 4 << 20), Algorithm::native);
  EXPECT_NE(algorithm(c, Collective::all_reduce, 16 << 20), Algorithm::native);
  EXPECT_NE(algorithm(c, Collective::all_gather, 4 << 20), Algorithm::native);  // nobody measured it
  EXPECT_EQ(c.chosen(Collective::all_reduce, 4 << 20).communication->parts, 1);
  // It takes what was measured, unless that is less than its bytes need.
  Operation slow = c.transfer(Collective::all_reduce, 16 << 20);
  slow.communication->algorithm = Algorithm::native;
  EXPECT_NEAR(seconds(c.cost.alone(slow)), seconds(ring_of_8) * 4, 1e-8);
  EXPECT_NEAR(seconds(c.cost.alone(c.chosen(Collective::all_reduce, 4 << 20))), 1.5 * 4194304 / 125e6, 1e-8);

  profile.library.always = true;
  const Case always(parse_cluster("local:4,nic=1Gb/s"), 1, profile);
  EXPECT_EQ(algorithm(always, Collective::all_reduce, 16 << 20), Algorithm::native);
  EXPECT_NE(algorithm(always, Collective::all_gather, 4 << 20), Algorithm::native);
  // Groups of another size were not measured.
  const Case groups_of_two(parse_cluster("local:4,nic=1Gb/s"), 2, profile);
  EXPECT_NE(algorithm(groups_of_two, Collective::all_reduce, 4 << 20), Algorithm::native);
}

// The plans of a search ask the same questions over and over: each is simulated once, whichever graph it comes from.
TEST(SharedProgramCosts, AnswerEveryCostModelOfTheSameClusterAndProfile) {
  const Case one(parse_cluster("local:4,nic=1Gb/s"));
  const auto shared = shared_program_costs(one.cluster, default_profile());
  const CostModel first(one.graph, one.cluster, default_profile(), shared);
  Operation op = one.transfer(Collective::all_reduce, kBuffer);
  ASSERT_TRUE(first.choose_program(op));
  const Nanos time = first.alone(op);
  EXPECT_EQ(time, one.cost.alone(op));
  const std::size_t asked = shared->simulated_questions();
  EXPECT_EQ(asked, 2U);  // which is best, and what it costs

  const StepGraph copy = one.graph;
  const CostModel second(copy, one.cluster, default_profile(), shared);
  Operation again = one.transfer(Collective::all_reduce, kBuffer);
  ASSERT_TRUE(second.choose_program(again));
  EXPECT_EQ(second.alone(again), time);
  EXPECT_EQ(shared->simulated_questions(), asked);

  // Half as fast links: other answers, so others' are not taken.
  const Case slow(parse_cluster("local:4,nic=500Mb/s"));
  const CostModel other(slow.graph, slow.cluster, default_profile(), shared);
  Operation slower = slow.transfer(Collective::all_reduce, kBuffer);
  ASSERT_TRUE(other.choose_program(slower));
  EXPECT_GT(other.alone(slower).value, time.value * 19 / 10);
  EXPECT_EQ(shared->simulated_questions(), asked);
}

}  // namespace
}  // namespace weft
