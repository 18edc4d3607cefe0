#include "planner/schedule/cyclic/test_cyclic_oracle.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

namespace weft::test {

namespace {

std::size_t at(std::int32_t index) {
  return index;
}

// All waits, those of queues, links and fixed orders included.
std::vector<CyclicEdge> all_waits(const CyclicProblem& problem, const QueueOrders& orders) {
  std::vector<CyclicEdge> waits = problem.edges;
  const auto add_chain = [&](const std::vector<std::int32_t>& order) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const bool last = i + 1 == order.size();
      waits.push_back({order[i], order[last ? 0 : i + 1], last ? 1 : 0});
    }
  };
  for (const auto& order : orders.queues) add_chain(order);
  for (const auto& order : orders.links) add_chain(order);
  for (std::size_t i = 0; i < problem.operations.size(); ++i) {
    for (std::size_t j = i + 1; j < problem.operations.size(); ++j) {
      const CyclicOperation &a = problem.operations[i], &b = problem.operations[j];
      if (a.queue == b.queue && a.fixed_order && b.fixed_order) {
        waits.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(j), 0});
      }
    }
  }
  return waits;
}

// Cycles by their lowest operation.
class AllCycles {
 public:
  AllCycles(const CyclicProblem& problem, const std::vector<CyclicEdge>& waits)
      : problem_(problem), out_(problem.operations.size()), on_path_(problem.operations.size(), false) {
    for (const CyclicEdge& wait : waits) out_[at(wait.from)].push_back(wait);
  }
  std::optional<double> largest_ratio() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      lowest_ = static_cast<std::int32_t>(i);
      follow(lowest_, 0, 0);
    }
    if (deadlock_) return std::nullopt;
    return largest_;
  }

 private:
  void follow(std::int32_t i, double ns, int iterations) {
    on_path_[at(i)] = true;
    ns += problem_.operations[at(i)].ns;
    for (const CyclicEdge& wait : out_[at(i)]) {
      if (wait.to == lowest_) {
        const int spanned = iterations + wait.distance;
        if (spanned == 0) {
          deadlock_ = true;
        } else {
          largest_ = std::max(largest_, ns / spanned);
        }
      } else if (wait.to > lowest_ && !on_path_[at(wait.to)]) {
        follow(wait.to, ns, iterations + wait.distance);
      }
    }
    on_path_[at(i)] = false;
  }

  const CyclicProblem& problem_;
  std::vector<std::vector<CyclicEdge>> out_;
  std::vector<bool> on_path_;
  std::int32_t lowest_ = 0;
  double largest_ = 0;
  bool deadlock_ = false;
};

}  // namespace

std::optional<double> largest_cycle_ratio(const CyclicProblem& problem, const QueueOrders& orders) {
  return AllCycles(problem, all_waits(problem, orders)).largest_ratio();
}

double mean_iteration(const CyclicProblem& problem, const QueueOrders& orders, int skip, int measured) {
  const std::vector<CyclicEdge> waits = all_waits(problem, orders);
  std::vector<std::vector<CyclicEdge>> into(problem.operations.size());
  for (const CyclicEdge& wait : waits) into[at(wait.to)].push_back(wait);
  // Operations in an order in which each follows what it waits for within the iteration.
  std::vector<std::int32_t> sequence;
  std::vector<bool> placed(problem.operations.size(), false);
  const std::function<void(std::int32_t)> place = [&](std::int32_t i) {
    if (placed[at(i)]) return;
    placed[at(i)] = true;
    for (const CyclicEdge& wait : into[at(i)]) {
      if (wait.distance == 0) place(wait.from);
    }
    sequence.push_back(i);
  };
  for (std::size_t i = 0; i < problem.operations.size(); ++i) place(static_cast<std::int32_t>(i));

  std::vector<double> ends(problem.operations.size(), 0), previous, begin;
  for (int k = 0; k < skip + measured; ++k) {
    if (k == skip) begin = ends;
    previous = ends;
    for (std::int32_t i : sequence) {
      double start = 0;
      for (const CyclicEdge& wait : into[at(i)]) {
        start = std::max(start, wait.distance == 0 ? ends[at(wait.from)] : previous[at(wait.from)]);
      }
      ends[at(i)] = start + problem.operations[at(i)].ns;
    }
  }
  double longest = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) longest = std::max(longest, (ends[i] - begin[i]) / measured);
  return longest;
}

double shortest_of_all_orders(const CyclicProblem& problem) {
  QueueOrders orders;
  orders.queues.resize(at(problem.queues));
  orders.links.resize(at(problem.links));
  for (std::size_t i = 0; i < problem.operations.size(); ++i) {
    const CyclicOperation& operation = problem.operations[i];
    orders.queues[at(operation.queue)].push_back(static_cast<std::int32_t>(i));
    if (operation.link >= 0) orders.links[at(operation.link)].push_back(static_cast<std::int32_t>(i));
  }
  std::vector<std::vector<std::int32_t>*> all;
  for (auto& order : orders.queues) all.push_back(&order);
  for (auto& order : orders.links) all.push_back(&order);
  double shortest = std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t)> permute = [&](std::size_t which) {
    if (which == all.size()) {
      const auto found = largest_cycle_ratio(problem, orders);
      if (found) shortest = std::min(shortest, *found);
      return;
    }
    do {
      permute(which + 1);
    } while (std::next_permutation(all[which]->begin(), all[which]->end()));
  };
  permute(0);
  return shortest;
}

}  // namespace weft::test
