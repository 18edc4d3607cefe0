// Builds small simulation problems for tests: operations first, then what they wait for. Times are nanoseconds. The
// order in which operations are added is the order of their queue, which repeats every iteration. Compute and blocking
// transfers of a rank are its chain.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "sim/engine.hpp"

namespace weft::test {

// A transfer alone: `latency`, then `moving` over what it uses. Transfers of one rank and queue follow each other; -1
// is a queue of its own.
struct Message {
  std::int64_t moving = 0;
  std::vector<ResourceUse> use = {};
  std::int64_t latency = 0;
  std::int32_t queue = -1;
  std::int32_t joint = -1;
  bool blocking = false;
};

class TestProblem {
 public:
  std::int32_t rank(double compute_slowdown = 0, double transfer_slowdown = 0, std::int64_t wake = 0,
                    double further_slowdown = 0, double waiting_slowdown = 0) {
    problem_.ranks.push_back({compute_slowdown, transfer_slowdown, Nanos{wake}, further_slowdown, waiting_slowdown});
    return static_cast<std::int32_t>(problem_.ranks.size()) - 1;
  }
  std::int32_t compute(std::int32_t rank, std::int64_t duration) {
    const std::int32_t id = add(rank, SimQueue::compute, {Nanos{duration}, {}, {}}, kCompute);
    chains_[rank].push_back(id);
    return id;
  }
  std::int32_t extra(std::int32_t rank, std::int64_t duration) {
    return add(rank, SimQueue::extra, {Nanos{duration}, {}, {}}, kExtra);
  }
  std::int32_t transfer(std::int32_t rank, Message message) {
    for (const ResourceUse& use : message.use) problem_.resources = std::max(problem_.resources, use.resource + 1);
    const std::int32_t own = -3 - static_cast<std::int32_t>(problem_.operations.size());
    const std::int32_t id =
        add(rank, SimQueue::transfer, {Nanos{message.latency}, Nanos{message.moving}, std::move(message.use)},
            message.queue >= 0 ? message.queue : own);
    problem_.operations.back().joint = {message.joint};
    if (message.blocking) chains_[rank].push_back(id);
    return id;
  }
  void wait(std::int32_t operation, std::int32_t from, std::int8_t distance = 0) {
    data_[operation].push_back({from, distance, false});
  }

  // Each queue's operations follow each other, the first one the last of the previous iteration. A seed shuffles the
  // edges of every operation.
  SimProblem build(std::uint32_t shuffle = 0) const {
    SimProblem problem = problem_;
    std::vector<std::vector<Dependency>> edges = data_;
    for (const auto& [key, members] : queues_) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::int32_t before = i > 0 ? members[i - 1] : members.back();
        edges[members[i]].push_back({before, static_cast<std::int8_t>(i > 0 ? 0 : 1), true});
      }
    }
    for (const auto& [rank, members] : chains_) {
      for (std::size_t i = 0; i < members.size(); ++i) {
        const std::int32_t before = i > 0 ? members[i - 1] : members.back();
        problem.operations[members[i]].chain = static_cast<std::int32_t>(i);
        edges[members[i]].push_back({before, static_cast<std::int8_t>(i > 0 ? 0 : 1), true});
      }
    }
    std::mt19937 random(shuffle);
    problem.edge_begin.push_back(0);
    for (auto& list : edges) {
      if (shuffle != 0) std::shuffle(list.begin(), list.end(), random);
      problem.edges.insert(problem.edges.end(), list.begin(), list.end());
      problem.edge_begin.push_back(static_cast<std::int32_t>(problem.edges.size()));
    }
    return problem;
  }

 private:
  static constexpr std::int32_t kCompute = -1, kExtra = -2;

  std::int32_t add(std::int32_t rank, SimQueue kind, SimCost cost, std::int32_t queue) {
    const auto id = static_cast<std::int32_t>(problem_.operations.size());
    problem_.operations.push_back({rank, kind, id, {}});
    problem_.costs.push_back(std::move(cost));
    data_.emplace_back();
    queues_[{rank, queue}].push_back(id);
    return id;
  }

  SimProblem problem_;
  std::vector<std::vector<Dependency>> data_;  // by operation
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int32_t>> queues_;
  std::map<std::int32_t, std::vector<std::int32_t>> chains_;  // by rank
};

inline SimTimes times_of(const SimResult& result, std::int32_t operation, std::size_t iteration = 0) {
  return result.iterations.at(iteration).at(operation);
}
inline std::int64_t start_of(const SimResult& result, std::int32_t operation, std::size_t iteration = 0) {
  return times_of(result, operation, iteration).start.value;
}
inline std::int64_t end_of(const SimResult& result, std::int32_t operation, std::size_t iteration = 0) {
  return times_of(result, operation, iteration).end.value;
}

}  // namespace weft::test
