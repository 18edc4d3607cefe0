// Two rings of opposite direction, each with half of every slice. Both directions work where links are full duplex or a
// rank has links to both neighbours. A rank sends as many bytes as in one ring.
#include <algorithm>

#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

// The ring in the order of the ranks (0) or against it (1), and its half of every slice.
Group one_way(const ProgramRequest& request, std::int64_t way) {
  const std::int64_t ranks = request.ranks;
  const std::int64_t parts = request.parts;
  Group group{consecutive(0, ranks), {}, parts, way};
  if (way == 1) std::reverse(group.members.begin(), group.members.end());
  group.slice = [ranks, parts, way](std::int64_t index) {
    const std::int64_t rank = way == 0 ? index : ranks - 1 - index;
    return std::vector<Pieces>{consecutive((2 * rank + way) * parts, parts)};
  };
  return group;
}

}  // namespace

Program bidirectional_ring_program(const ProgramRequest& request) {
  ProgramBuilder builder = builder_for(request, 2 * request.ranks * request.parts);
  Holdings holdings(builder);
  for (const std::int64_t way : {0, 1}) {
    const Group group = one_way(request, way);
    if (request.kind != Collective::all_gather) ring_reduce_scatter(holdings, group);
    if (request.kind != Collective::reduce_scatter) ring_all_gather(holdings, group);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
