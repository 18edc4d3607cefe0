// A step that repeats for ever, as the search for an order sees it: operations on lanes, and who waits for whom. Plain
// numbers, no graph and no cluster, so that small problems can be solved exactly and compared with (exact_order.hpp).
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

// A lane is a queue: one operation at a time, in the order that is searched for. Lane 0 is a rank's worker, the others
// are communication queues.
struct CyclicOperation {
  std::int32_t lane = 0;
  double ns = 0;
  // What several lanes share: one operation at a time as well. (Two at half speed each would move the same bytes in the
  // same time.) -1: none.
  std::int32_t link = -1;
  // Those of a lane that are marked keep the order of their indices among themselves.
  bool fixed_order = false;
};

// `to` waits for `from` of the same iteration, or of the one before (distance 1).
struct CyclicEdge {
  std::int32_t from = 0, to = 0;
  std::int32_t distance = 0;
};

struct CyclicProblem {
  std::int32_t lanes = 0;
  std::int32_t links = 0;
  std::vector<CyclicOperation> operations = {};
  std::vector<CyclicEdge> edges = {};
};

// What is searched for: in which order each lane and each link takes its operations, the same in every iteration. An
// iteration's last comes before the next iteration's first.
struct LaneOrders {
  std::vector<std::vector<std::int32_t>> lanes;
  std::vector<std::vector<std::int32_t>> links;  // one entry per link, empty where no operation names it
  friend bool operator==(const LaneOrders&, const LaneOrders&) = default;
};

}  // namespace weft
