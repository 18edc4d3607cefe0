// Rings: every rank sends to the next one only. A reduce_scatter passes N-1 partial sums around, an all_gather N-1
// finished slices; all_reduce is the one after the other. Broadcast and reduce are chains around the ring, which end
// before or at the root; parts follow each other, so that all links work at once.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {

Program ring_program(const ProgramRequest& request) {
  const bool is_chain = request.kind == Collective::broadcast || request.kind == Collective::reduce;
  ProgramBuilder builder = builder_for(request, is_chain ? request.parts : request.ranks * request.parts);
  Holdings holdings(builder);
  const Group group = whole_group(builder.spec(), request.parts);
  std::vector<std::int64_t> chain;
  for (std::int64_t i = 0; i < request.ranks; ++i) chain.push_back(wrapped(request.root + i, request.ranks));
  switch (request.kind) {
    case Collective::broadcast:
      chain_broadcast(holdings, chain, consecutive(0, request.parts));
      break;
    case Collective::reduce:
      chain.erase(chain.begin());
      chain.push_back(request.root);
      chain_reduce(holdings, chain, consecutive(0, request.parts));
      break;
    case Collective::reduce_scatter:
      ring_reduce_scatter(holdings, group);
      break;
    case Collective::all_gather:
      ring_all_gather(holdings, group);
      break;
    default:
      ring_reduce_scatter(holdings, group);
      ring_all_gather(holdings, group);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
