// The bound against every periodic schedule of small random graphs: none may be shorter.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bound/bound.hpp"

namespace weft {
namespace {

constexpr double kNone = -1e18;

struct Unit {
  std::int32_t resource;
  double work;
};
struct Wait {
  std::size_t from, to;
  int distance;
};

// Whether starts exist with start(to) >= start(from) + length - period * distance for all: no cycle of positive length
// (Floyd and Warshall over at most six units).
class Constraints {
 public:
  explicit Constraints(std::size_t units) : n_(units), length_(units * units, kNone) {}
  void add(std::size_t from, std::size_t to, double length) {
    length_[from * n_ + to] = std::max(length_[from * n_ + to], length);
  }
  bool feasible() {
    for (std::size_t k = 0; k < n_; ++k) {
      for (std::size_t i = 0; i < n_; ++i) {
        if (length_[i * n_ + k] <= kNone) continue;
        for (std::size_t j = 0; j < n_; ++j) {
          if (length_[k * n_ + j] > kNone) add(i, j, length_[i * n_ + k] + length_[k * n_ + j]);
        }
        if (length_[i * n_ + i] > 1e-9) return false;
      }
    }
    return true;
  }

 private:
  std::size_t n_;
  std::vector<double> length_;
};

// All cyclic orders of the units of one resource, each unit up to one iteration ahead of or behind the first.
class Schedules {
 public:
  Schedules(std::vector<Unit> units, std::vector<Wait> waits) : units_(std::move(units)), waits_(std::move(waits)) {
    for (std::int32_t r = 0; r < 2; ++r) {
      for (std::size_t i = 0; i < units_.size(); ++i) {
        if (units_[i].resource == r) orders_[r].push_back(i);
      }
    }
  }

  // Is there one with this period?
  bool possible(double period) {
    Constraints data(units_.size());
    for (const Wait& wait : waits_) data.add(wait.from, wait.to, units_[wait.from].work - period * wait.distance);
    return try_resource(0, data, period);
  }

 private:
  bool try_resource(std::size_t r, const Constraints& so_far, double period) {
    if (r == 2) return Constraints(so_far).feasible();
    std::vector<std::size_t> order = orders_[r];
    if (order.empty()) return try_resource(r + 1, so_far, period);
    do {
      std::vector<int> ahead(order.size(), 0);
      if (try_offsets(r, order, ahead, 1, so_far, period)) return true;
    } while (std::next_permutation(order.begin() + 1, order.end()));
    return false;
  }

  bool try_offsets(std::size_t r, const std::vector<std::size_t>& order, std::vector<int>& ahead, std::size_t at,
                   const Constraints& so_far, double period) {
    if (at < order.size()) {
      for (ahead[at] = -1; ahead[at] <= 1; ++ahead[at]) {
        if (try_offsets(r, order, ahead, at + 1, so_far, period)) return true;
      }
      return false;
    }
    Constraints constraints = so_far;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t next = (i + 1) % order.size();
      const int distance = ahead[i] - ahead[next] + (next == 0 ? 1 : 0);
      constraints.add(order[i], order[next], units_[order[i]].work - period * distance);
    }
    if (!Constraints(constraints).feasible()) return false;
    return try_resource(r + 1, constraints, period);
  }

  std::vector<Unit> units_;
  std::vector<Wait> waits_;
  std::vector<std::size_t> orders_[2];
};

struct RandomGraph {
  BoundProblem problem;
  std::vector<Unit> units;
  std::vector<Wait> waits;
};

// `parts` of each operation: one after the other within an iteration, whole across iterations and behind barriers.
RandomGraph random_graph(std::mt19937& random, std::size_t operations, std::size_t parts) {
  RandomGraph g;
  g.problem.resources = 2;
  for (std::size_t i = 0; i < operations; ++i) {
    BoundNode node;
    const double part = static_cast<double>(1 + random() % 9);
    const auto resource = static_cast<std::int32_t>(random() % 2);
    node.uses = {{resource, part * static_cast<double>(parts)}};
    node.part_ns = part;
    node.barrier = random() % 4 == 0;
    for (std::size_t p = 0; p < parts; ++p) g.units.push_back({resource, part});
    g.problem.nodes.push_back(node);
  }
  const auto connect = [&](std::size_t from, std::size_t to, int distance) {
    g.problem.edges.push_back({static_cast<std::int32_t>(from), static_cast<std::int32_t>(to), distance});
    const bool whole = distance == 1 || g.problem.nodes[from].barrier;
    for (std::size_t p = 0; p < parts; ++p) {
      for (std::size_t q = 0; q < parts; ++q) {
        if (whole || p == q) g.waits.push_back({from * parts + p, to * parts + q, distance});
      }
    }
  };
  for (std::size_t i = 0; i < operations; ++i) {
    for (std::size_t j = 0; j < operations; ++j) {
      if (i < j && random() % 3 != 0) connect(i, j, 0);
      // Few loop-carried edges, as in a training step: long chains are what parts are for.
      if (random() % 16 == 0 || (i + 1 == operations && j == 0)) connect(i, j, 1);
    }
  }
  return g;
}

// No schedule beats the bound; in `reached` of the graphs one meets it.
int count_reached(std::uint32_t seed, int graphs, std::size_t operations, std::size_t parts) {
  std::mt19937 random(seed);
  int reached = 0;
  for (int round = 0; round < graphs; ++round) {
    const RandomGraph g = random_graph(random, 2 + random() % (operations - 1), parts);
    const double bound = lower_bound(g.problem).period_ns;
    Schedules schedules(g.units, g.waits);
    EXPECT_FALSE(schedules.possible(bound - 1e-3)) << "round " << round << ", bound " << bound;
    reached += schedules.possible(bound) ? 1 : 0;
  }
  return reached;
}

TEST(BoundProperty, NoScheduleOfAnUncutGraphIsShorter) {
  EXPECT_GT(count_reached(5, 150, 6, 1), 75);
}

TEST(BoundProperty, NoScheduleOfAGraphInHalvesIsShorter) {
  EXPECT_GT(count_reached(6, 150, 3, 2), 75);
}

TEST(BoundProperty, NoScheduleOfAGraphInThirdsIsShorter) {
  EXPECT_GT(count_reached(7, 20, 2, 3), 10);
}

}  // namespace
}  // namespace weft
