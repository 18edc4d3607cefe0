// all_reduce in its plainest form: one rank (`root` of the request) receives and adds everything, then sends the sum to
// everybody. 2 messages that follow each other; the root carries N-1 times what the others do.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {

Program reduce_broadcast_program(const ProgramRequest& request) {
  ProgramBuilder builder = builder_for(request, request.parts);
  Holdings holdings(builder);
  const auto with_others = [&](const auto& move) {
    for (std::int64_t distance = 1; distance < request.ranks; ++distance) {
      move(wrapped(request.root + distance, request.ranks));
    }
  };
  const Pieces pieces = consecutive(0, request.parts);
  with_others([&](std::int64_t other) {
    holdings.reduce({.from = other, .to = request.root, .pieces = pieces, .messages = request.parts});
  });
  with_others([&](std::int64_t other) {
    holdings.copy({.from = request.root, .to = other, .pieces = pieces, .messages = request.parts});
  });
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
