#include "study/chakra/chakra_study.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/profile.hpp"

namespace weft {
namespace {

ChakraNode traced_node(std::uint64_t id, ChakraType type, std::int64_t microseconds,
                       std::vector<std::uint64_t> data = {}) {
  ChakraNode node;
  node.id = id;
  node.name = "n" + std::to_string(id);
  node.type = type;
  node.duration = Nanos{microseconds * 1000};
  node.data = std::move(data);
  if (type == ChakraType::collective) node.collective = Collective::all_reduce;
  return node;
}
ChakraNode traced_compute(std::uint64_t id, std::int64_t us, std::vector<std::uint64_t> data = {}) {
  return traced_node(id, ChakraType::compute, us, std::move(data));
}
ChakraNode traced_collective(std::uint64_t id, std::int64_t us, std::vector<std::uint64_t> data, std::string group) {
  ChakraNode node = traced_node(id, ChakraType::collective, us, std::move(data));
  node.group = std::move(group);
  node.bytes = Bytes{1024};
  return node;
}
ChakraNode traced_message(std::uint64_t id, ChakraType type, std::int64_t from, std::int64_t to,
                          std::vector<std::uint64_t> data = {}) {
  ChakraNode node = traced_node(id, type, 1, std::move(data));
  node.source = from;
  node.destination = to;
  return node;
}

TracedStep traced(std::vector<std::vector<ChakraNode>> ranks) {
  std::vector<ChakraFile> files;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    files.push_back({"t." + std::to_string(r) + ".et", "", std::move(ranks[r])});
  }
  return join_traces(files, {});
}

double step_us(const ChakraStudy& study, const std::string& name) {
  for (const ChakraOrder& order : study.orders) {
    if (order.name == name) return order.step_s * 1e6;
  }
  return -1;
}

ChakraStudy study_of(TracedStep step) {
  const TracedCosts costs = traced_costs(step);
  return study_chakra(std::move(step), costs);
}

// Two gradients, made one after the other, and their reductions. One by one: 10 + 4 + 10 + 4. The trace's order issues
// the first reduction beside the second product: 10 + 10 + 4.
TEST(ChakraStudy, TransfersRunBesideCompute) {
  const ChakraStudy study = study_of(traced({{traced_compute(1, 10), traced_collective(2, 4, {1}, "dp"),
                                              traced_compute(3, 10, {1}), traced_collective(4, 4, {3}, "dp")}}));
  EXPECT_NEAR(step_us(study, "serial"), 28, 1e-6);
  EXPECT_NEAR(step_us(study, "trace"), 24, 1e-6);
  EXPECT_NEAR(step_us(study, "weft"), 24, 1e-6);
  EXPECT_NEAR(study.bound.ns, 24'000, 1e-6);
}

// In the trace's order the long transfer begins last: 10 + 10 + 30. The product that it needs can go first: 10 + 30.
TEST(ChakraStudy, FindsTheOrderThatHidesATransfer) {
  const ChakraStudy study =
      study_of(traced({{traced_compute(1, 10), traced_compute(2, 10), traced_collective(3, 30, {2}, "dp")}}));
  EXPECT_NEAR(step_us(study, "trace"), 50, 1e-6);
  EXPECT_NEAR(step_us(study, "weft"), 40, 1e-6);
  EXPECT_NEAR(study.bound.ns, 40'000, 1e-6);
}

// Rank 1 reaches the collective after 30 us, and rank 0 waits for it.
TEST(ChakraStudy, ACollectiveWaitsForAllOfItsRanks) {
  const ChakraStudy study =
      study_of(traced({{traced_compute(1, 10), traced_collective(2, 5, {1}, "dp"), traced_compute(3, 7, {2})},
                       {traced_compute(1, 30), traced_collective(2, 6, {1}, "dp"), traced_compute(3, 1, {2})}}));
  EXPECT_EQ(study.step.operations.size(), 5U);
  // The shorter of both times: the other one includes waiting.
  EXPECT_NEAR(step_us(study, "trace"), 30 + 5 + 7, 1e-6);
}

TEST(ChakraStudy, ControlDependenciesHoldInTheTraceAlone) {
  std::vector<ChakraNode> nodes{traced_compute(1, 10), traced_collective(2, 20, {}, "dp")};
  nodes[1].control = {1};
  const ChakraStudy study = study_of(traced({nodes}));
  EXPECT_NEAR(step_us(study, "trace"), 30, 1e-6);
  EXPECT_NEAR(step_us(study, "weft"), 20, 1e-6);
}

// The host launches; the device waits for it: 3 + 10, and its second kernel is launched meanwhile.
TEST(ChakraStudy, HostsAreQueuesOfTheirOwn) {
  std::vector<ChakraNode> nodes{traced_compute(1, 3), traced_compute(2, 3, {1}), traced_compute(3, 10, {1}),
                                traced_compute(4, 10, {2})};
  nodes[0].on_host = nodes[1].on_host = true;
  EXPECT_NEAR(step_us(study_of(traced({nodes})), "trace"), 23, 1e-6);
}

TEST(ChakraStudy, MessagesAreMatchedByTheirEndsAndTags) {
  using enum ChakraType;
  const TracedStep step = traced({{traced_message(1, send, 0, 1), traced_message(2, receive, 1, 0)},
                                  {traced_message(1, receive, 0, 1), traced_message(2, send, 1, 0)}});
  EXPECT_EQ(step.operations.size(), 2U);
  EXPECT_FALSE(verify_traced(step).has_value());
  EXPECT_TRUE(ends_one_by_one(step));
}

// Both ranks receive before they send.
TEST(ChakraStudy, ACycleOfMessagesIsADeadlock) {
  using enum ChakraType;
  const TracedStep step = traced({{traced_message(1, receive, 1, 0), traced_message(2, send, 0, 1, {1})},
                                  {traced_message(1, receive, 0, 1), traced_message(2, send, 1, 0, {1})}});
  ASSERT_TRUE(verify_traced(step).has_value());
  EXPECT_NE(verify_traced(step)->find("deadlock"), std::string::npos);
  EXPECT_THROW(study_of(step), Error);
}

// Rank 0 begins with group a, rank 1 with group b: NCCL needs both kernels on the device at once.
TEST(ChakraStudy, GroupsInDifferentOrdersNeedToRunBesideEachOther) {
  const TracedStep step = traced({{traced_collective(1, 5, {}, "a"), traced_collective(2, 5, {}, "b")},
                                  {traced_collective(1, 5, {}, "b"), traced_collective(2, 5, {}, "a")}});
  EXPECT_FALSE(verify_traced(step).has_value());
  EXPECT_FALSE(ends_one_by_one(step));
  const ChakraStudy study = study_of(step);
  ASSERT_EQ(study.failed.size(), 1U);
  EXPECT_EQ(study.failed[0].name, "serial");
}

std::string join_error(std::vector<std::vector<ChakraNode>> ranks) {
  try {
    traced(std::move(ranks));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChakraStudy, SaysWhatDoesNotBelongTogether) {
  using enum ChakraType;
  const auto all_reduce = traced_collective(1, 5, {}, "dp");
  auto all_gather = all_reduce;
  all_gather.collective = Collective::all_gather;
  EXPECT_NE(join_error({{all_reduce}, {all_gather}}).find("but all_reduce of 1024 bytes in t.0.et"), std::string::npos);
  EXPECT_NE(join_error({{all_reduce, traced_collective(2, 5, {}, "dp")}, {all_reduce}}).find("never takes part"),
            std::string::npos);
  EXPECT_NE(join_error({{traced_message(1, send, 0, 1)}, {traced_compute(1, 3)}}).find("rank 1 never takes part"),
            std::string::npos);
  EXPECT_NE(join_error({{traced_compute(1, 3, {2}), traced_compute(2, 3, {1})}}).find("form a cycle"),
            std::string::npos);
}

// Control dependencies of PyTorch's traces are calls and may contradict the order of execution.
TEST(ChakraStudy, ControlDependenciesThatContradictDataAreLeftOut) {
  std::vector<ChakraNode> nodes{traced_compute(1, 3, {2}), traced_compute(2, 3)};
  nodes[1].control = {1};
  const TracedStep step = traced({nodes});
  EXPECT_TRUE(step.control.empty());
  ASSERT_EQ(step.warnings.size(), 1U);
}

// The least time over all orders of a small step, each simulated by hand: an operation starts when its queue is free
// and what it waits for has ended.
double least_by_brute_force(const TracedStep& step) {
  std::vector<std::size_t> order(step.operations.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  double least = 1e300;
  do {
    std::vector<double> end(order.size(), -1), free(step.queues.size(), 0);
    double last = 0;
    bool runs = true;
    for (const std::size_t i : order) {
      double start = free[static_cast<std::size_t>(step.operations[i].queue)];
      for (const TracedEdge& edge : step.data) {
        if (static_cast<std::size_t>(edge.to) != i) continue;
        const double before = end[static_cast<std::size_t>(edge.from)];
        runs &= before >= 0;
        start = std::max(start, before);
      }
      if (!runs) break;
      end[i] = start + static_cast<double>(step.operations[i].duration.value);
      free[static_cast<std::size_t>(step.operations[i].queue)] = end[i];
      last = std::max(last, end[i]);
    }
    if (runs) least = std::min(least, last);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(ChakraStudy, SmallStepsAreAsFastAsTheBestOfAllOrders) {
  int better_than_trace = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<ChakraNode>> ranks(2);
    for (std::size_t r = 0; r < 2; ++r) {
      for (std::uint64_t id = 1; id <= 4; ++id) {
        std::vector<std::uint64_t> data;
        if (id > 1 && random() % 2 == 0) data.push_back(1 + random() % (id - 1));
        const auto us = static_cast<std::int64_t>(1 + random() % 20);
        // The second or third node is the one collective of both ranks.
        const bool is_collective = id == 2 + seed % 2;
        ranks[r].push_back(is_collective ? traced_collective(id, us, data, "dp") : traced_compute(id, us, data));
      }
    }
    const ChakraStudy study = study_of(traced(ranks));
    const double least = least_by_brute_force(study.step);
    const double found = study.orders[study.best].timeline.period_ns;
    EXPECT_NEAR(found, least, 1) << seed;
    EXPECT_LE(study.bound.ns, least + 1) << seed;
    for (const ChakraOrder& order : study.orders) {
      EXPECT_GE(order.timeline.period_ns, found - 1) << seed;
      const RankAccount& a = order.mean;
      EXPECT_NEAR(a.compute_s + a.slowdown_s + a.exposed_s + a.bubble_s + a.idle_s, order.step_s, 1e-9) << seed;
    }
    better_than_trace += step_us(study, "trace") > found * 1e-3 + 0.5 ? 1 : 0;
  }
  EXPECT_GT(better_than_trace, 5);
}

// On links of 10 Gb/s an all_reduce of n ranks and B bytes takes at least 2 (n - 1) / n B / rate.
TEST(ChakraStudy, ACollectiveOnAClusterTakesAtLeastWhatTheLinksNeed) {
  std::vector<std::vector<ChakraNode>> ranks(4);
  for (auto& rank : ranks) {
    rank = {traced_collective(1, 1, {}, "dp")};
    rank[0].bytes = Bytes{1'000'000'000};
  }
  const TracedStep step = traced(ranks);
  const Cluster cluster(parse_cluster("local:4,nic=10Gb/s"));
  const TracedCosts costs = costs_on_cluster(step, cluster, default_profile());
  const ChakraStudy study = study_chakra(step, costs);
  const double least_us = 2.0 * 3 / 4 * 1e9 / (10e9 / 8) * 1e6;
  EXPECT_GE(step_us(study, "weft"), least_us * 0.999);
  EXPECT_LE(step_us(study, "weft"), least_us * 1.2);
  EXPECT_GE(study.bound.ns * 1e-3, least_us * 0.999);
  const Cluster small(parse_cluster("local:2,nic=10Gb/s"));
  EXPECT_THROW(costs_on_cluster(step, small, default_profile()), Error);
}

}  // namespace
}  // namespace weft
