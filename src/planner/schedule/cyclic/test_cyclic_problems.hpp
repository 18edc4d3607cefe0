// Random repeating steps for tests and benchmarks of the search for an order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "bound/bound.hpp"
#include "planner/schedule/cyclic/cyclic_problem.hpp"

namespace weft::test {

class CyclicProblems {
 public:
  explicit CyclicProblems(std::uint32_t seed) : random_(seed) {}

  static constexpr int kKinds = 5;

  // Any of the kinds below, of at most `operations` operations (at least 4), mostly not far below.
  CyclicProblem any(std::int32_t operations) {
    return of_kind(below(kKinds), std::max(4, operations - below(std::max(1, operations / 2))));
  }
  CyclicProblem of_kind(int kind, std::int32_t operations) {
    switch (kind) {
      case 0:
        return unstructured(operations);
      case 1:
        return sparse(operations);
      case 2:
        return shop(operations);
      case 3:
        return training(operations, true);
      default:
        return training(operations, false);
    }
  }

  // Operations on any queue, edges of distance 0 from lower to higher, of distance 1 anywhere.
  CyclicProblem unstructured(std::int32_t operations) {
    CyclicProblem p{.queues = 2 + below(2)};
    for (std::int32_t i = 0; i < operations; ++i) p.operations.push_back({below(p.queues), duration()});
    for (std::int32_t i = 0; i < operations; ++i) {
      for (std::int32_t j = 0; j < operations; ++j) {
        if (i < j && below(4) == 0) p.edges.push_back({i, j, 0});
        if (below(2 * operations) == 0) p.edges.push_back({i, j, 1});
      }
    }
    shuffle(p);
    return p;
  }

  // Two chains or more that only queues tie together: much freedom.
  CyclicProblem sparse(std::int32_t operations) {
    CyclicProblem p{.queues = 2 + below(2)};
    for (std::int32_t i = 0; i < operations; ++i) p.operations.push_back({below(p.queues), duration()});
    const std::int32_t chains = 2 + below(3);
    for (std::int32_t i = 0; i + chains < operations; ++i) p.edges.push_back({i, i + chains, 0});
    for (std::int32_t c = 0; c < chains && operations - 1 - c > c; ++c) {
      if (below(2) == 0) p.edges.push_back({operations - 1 - c, c, 1});
    }
    shuffle(p);
    return p;
  }

  // Chains from queue to queue between the first operation and the last, which the next iteration waits for: a job
  // shop, whose period is its makespan.
  CyclicProblem shop(std::int32_t operations) {
    CyclicProblem p{.queues = 2 + below(2)};
    const std::int32_t last = operations - 1, chains = 2 + below(3);
    for (std::int32_t i = 0; i < operations; ++i) p.operations.push_back({below(p.queues), duration()});
    for (std::int32_t i = 1; i < last; ++i) {
      p.edges.push_back({i <= chains ? 0 : i - chains, i, 0});
      if (i + chains >= last) p.edges.push_back({i, last, 0});
    }
    p.edges.push_back({last, 0, 1});
    shuffle(p);
    return p;
  }

  // Layers: forward, input gradient, weight gradient on queue 0, a reduction on one of the queues, the update on queue
  // 0 before the next iteration's forward. Some layers have no weights of their own or update with the reduction. With
  // a barrier, every next forward waits for all of them (the norm of the gradients).
  CyclicProblem training(std::int32_t operations, bool barrier) {
    CyclicProblem p{.queues = 2 + below(2)};
    const auto add = [&](std::int32_t queue) {
      p.operations.push_back({queue, duration()});
      return static_cast<std::int32_t>(p.operations.size()) - 1;
    };
    const std::int32_t layers = std::max(1, operations / 4);
    std::vector<std::int32_t> forward;
    for (std::int32_t l = 0; l < layers; ++l) {
      forward.push_back(add(0));
      if (l > 0) p.edges.push_back({forward[slot(l - 1)], forward[slot(l)], 0});
    }
    std::int32_t gradient = forward.back();
    for (std::int32_t l = layers - 1; l >= 0; --l) {
      const auto left = [&] { return operations - static_cast<std::int32_t>(p.operations.size()); };
      std::int32_t before = gradient;
      if (left() > 0) {
        const std::int32_t weight = add(0);
        p.edges.push_back({gradient, weight, 0});
        before = weight;
      }
      if (l > 0 && left() > 0) {
        const std::int32_t input = add(0);
        p.edges.push_back({gradient, input, 0});
        gradient = input;
      }
      if (left() > 0) {
        const std::int32_t reduction = add(1 + below(p.queues - 1));
        p.edges.push_back({before, reduction, 0});
        before = reduction;
      }
      if (left() > 0 && below(2) == 0) {
        const std::int32_t update = add(0);
        p.edges.push_back({before, update, 0});
        before = update;
      }
      for (std::int32_t to = barrier ? 0 : l; to <= l; ++to) p.edges.push_back({before, forward[slot(to)], 1});
    }
    shuffle(p);
    return p;
  }

  // Queues above 0 share one link, which their operations name.
  void share_link(CyclicProblem& p) {
    p.links = 1;
    for (CyclicOperation& operation : p.operations) operation.link = operation.queue > 0 ? 0 : -1;
  }

  // The same problem as the bound sees it: nothing may be cut into parts.
  static BoundProblem bound_of(const CyclicProblem& problem) {
    BoundProblem bound{.resources = problem.queues + problem.links, .nodes = {}, .edges = {}};
    for (const CyclicOperation& operation : problem.operations) {
      BoundNode node{.uses = {{operation.queue, operation.ns}}, .part_ns = operation.ns, .once = true, .barrier = true};
      if (operation.link >= 0) node.uses.push_back({problem.queues + operation.link, operation.ns});
      bound.nodes.push_back(node);
    }
    for (const CyclicEdge& edge : problem.edges) bound.edges.push_back({edge.from, edge.to, edge.distance});
    return bound;
  }

  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(bound));
  }
  double duration() { return 1 + below(100); }

 private:
  static std::size_t slot(std::int32_t index) { return static_cast<std::size_t>(index); }

  // New names for the operations: no search may live on the order they were made in.
  void shuffle(CyclicProblem& p) {
    std::vector<std::int32_t> name(p.operations.size());
    for (std::size_t i = 0; i < name.size(); ++i) name[i] = static_cast<std::int32_t>(i);
    for (std::size_t i = name.size(); i > 1; --i) std::swap(name[i - 1], name[random_() % i]);
    std::vector<CyclicOperation> operations(p.operations.size());
    for (std::size_t i = 0; i < name.size(); ++i) operations[slot(name[i])] = p.operations[i];
    p.operations = operations;
    for (CyclicEdge& edge : p.edges) edge = {name[slot(edge.from)], name[slot(edge.to)], edge.distance};
  }

  std::mt19937 random_;
};

}  // namespace weft::test
