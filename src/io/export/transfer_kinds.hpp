// The collectives of a plan by what NCCL sees of them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

struct CommunicatorShape {
  Collective collective = Collective::all_reduce;
  std::int64_t nodes = 1, ranks = 1;
  friend auto operator<=>(const CommunicatorShape&, const CommunicatorShape&) = default;
};

struct TransferAlgorithm {
  Algorithm algorithm = Algorithm::ring;
  bool in_switches = false;  // carried: sums are made in switches
  friend auto operator<=>(const TransferAlgorithm&, const TransferAlgorithm&) = default;
};

// By shape and bytes of the whole buffer, the algorithms that transfers of the plan name. Messages between two ranks
// and groups of one are left out.
using TransferAlgorithms = std::map<CommunicatorShape, std::map<Bytes, std::set<TransferAlgorithm>>>;
TransferAlgorithms transfer_algorithms(const Plan& plan);

}  // namespace weft
