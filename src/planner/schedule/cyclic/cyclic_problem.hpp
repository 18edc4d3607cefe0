// A repeating step as the search for an order sees it: operations on queues, and who waits for whom. It holds plain
// numbers, no graph and no cluster, so that small problems can be solved exactly for comparison (exact_order.hpp).
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// A queue takes one operation at a time, in the order that the search looks for. Queue 0 is a rank's compute, the
// others are communication queues.
struct CyclicOperation {
  std::int32_t queue = 0;
  double ns = 0;
  // Several queues may share a link, which also takes one operation at a time. (Two operations at half speed would move
  // the same bytes in the same time.) -1: it uses no link.
  std::int32_t link = -1;
  // Operations of a queue with a fixed order keep the order of their indices among themselves.
  bool fixed_order = false;
};

// `to` waits for `from` of the same iteration, or of the one before (distance 1).
struct CyclicEdge {
  std::int32_t from = 0, to = 0;
  std::int32_t distance = 0;
};

struct CyclicProblem {
  std::int32_t queues = 0;
  std::int32_t links = 0;
  std::vector<CyclicOperation> operations = {};
  std::vector<CyclicEdge> edges = {};
};

// The result of a search: the order in which each queue and each link takes its operations, the same in every
// iteration. The last operation of an iteration comes before the first of the next.
struct QueueOrders {
  std::vector<std::vector<std::int32_t>> queues;
  std::vector<std::vector<std::int32_t>> links;  // one entry per link, empty where no operation names it
  friend bool operator==(const QueueOrders&, const QueueOrders&) = default;
};

}  // namespace weft
