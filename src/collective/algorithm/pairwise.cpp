// N-1 rounds: in round k every rank sends to the rank k further on and receives from the one k before. The messages are
// those of `direct`, but they leave one at a time, and with all ranks in step they arrive so too: each has the whole
// link at both ends. Receives do not wait for their turn: asking for a message only when the one before it has come can
// put the question behind data that goes the same way, and the peer's link idles for so long.
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
