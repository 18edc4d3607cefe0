// N-1 rounds: in round k every rank sends to the rank k further on and receives from the rank k before it. The messages
// are those of `direct`, but a rank sends one at a time, and while ranks keep step it receives one at a time, so each
// message has the whole link at both ends. Receives are posted without waiting for their turn: a request sent only
// after the previous message has arrived could queue behind data, and the peer's link would idle.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {

Program pairwise_program(const ProgramRequest& request) {
  ProgramBuilder builder = builder_for(request, request.ranks * request.parts);
  builder.send_in_turn(true);
  if (request.kind == Collective::all_to_all) {
    exchange_pairs(builder);
    return std::move(builder).finish();
  }
  Holdings holdings(builder);
  const Group group = whole_group(builder.spec(), request.parts);
  if (request.kind == Collective::all_gather) {
    direct_all_gather(holdings, group);
  } else {
    direct_reduce_scatter(holdings, group);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
