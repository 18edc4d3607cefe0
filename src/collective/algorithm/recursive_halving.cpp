// Recursive halving: in each round a worker sends the half of its pieces that is not its own side's to the partner, who
// adds it; after log2 p rounds everybody has the sum of its slice. The bytes of a ring in log2 p messages. all_reduce
// goes the same way back, doubling what everybody has (Rabenseifner, "Optimization of collective reduction operations",
// 2004).
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/recursive.hpp"

namespace weft {
namespace {

void reduce_scatter(Holdings& holdings, const ProgramRequest& request) {
  const FoldedRanks folding(request.ranks);
  const std::int64_t parts = request.parts;
  // Consecutive slices stay together until the end, also those that contain a rank's own slice.
  const auto together = [&](std::int64_t piece) {
    return SlotRef{request.in_place ? BufferKind::input : BufferKind::scratch, piece};
  };
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.reduce({.from = folding.folded(i),
                     .to = folding.folded_into(i),
                     .pieces = consecutive(0, request.ranks * parts),
                     .messages = parts,
                     .dst = together(0)});
  }
  for (std::int64_t bit = folding.workers() / 2; bit > 0; bit /= 2) {
    for (std::int64_t worker = 0; worker < folding.workers(); ++worker) {
      const std::int64_t partner = worker ^ bit;
      const std::int64_t first = partner / bit * bit;
      Move move{.from = folding.rank_of(worker), .to = folding.rank_of(partner), .pieces = {}, .messages = parts};
      move.pieces = pieces_of_ranks(folding, first, first + bit, parts);
      const bool one_slice = bit == 1 && partner >= folding.extra();
      if (!one_slice) move.dst = together(move.pieces.front());
      holdings.reduce(move);
    }
  }
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.copy({.from = folding.folded_into(i),
                   .to = folding.folded(i),
                   .pieces = consecutive(folding.folded(i) * parts, parts),
                   .messages = parts});
  }
}

// A slice is one p-th of the buffer, so folded ranks have none.
void all_reduce(Holdings& holdings, const ProgramRequest& request) {
  const FoldedRanks folding(request.ranks);
  const std::int64_t parts = request.parts;
  const Pieces all = consecutive(0, folding.workers() * parts);
  const auto exchange = [&](std::int64_t bit, bool halve) {
    for (std::int64_t worker = 0; worker < folding.workers(); ++worker) {
      const std::int64_t partner = worker ^ bit;
      const std::int64_t first = (halve ? partner : worker) / bit * bit;
      const Move move{.from = folding.rank_of(worker),
                      .to = folding.rank_of(partner),
                      .pieces = consecutive(first * parts, bit * parts),
                      .messages = parts};
      halve ? holdings.reduce(move) : holdings.copy(move);
    }
  };
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.reduce({.from = folding.folded(i), .to = folding.folded_into(i), .pieces = all, .messages = parts});
  }
  for (std::int64_t bit = folding.workers() / 2; bit > 0; bit /= 2) exchange(bit, true);
  for (std::int64_t bit = 1; bit < folding.workers(); bit *= 2) exchange(bit, false);
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.copy({.from = folding.folded_into(i), .to = folding.folded(i), .pieces = all, .messages = parts});
  }
}

}  // namespace

Program recursive_halving_program(const ProgramRequest& request) {
  const bool scatters = request.kind == Collective::reduce_scatter;
  const std::int64_t slices = scatters ? request.ranks : FoldedRanks(request.ranks).workers();
  ProgramBuilder builder = builder_for(request, slices * request.parts);
  Holdings holdings(builder);
  scatters ? reduce_scatter(holdings, request) : all_reduce(holdings, request);
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
