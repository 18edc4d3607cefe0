// Recursive doubling: in round k a worker exchanges all it has with the one whose number differs in bit k. all_gather
// doubles what everybody has; all_reduce sends the whole buffer in each of its log2 p rounds: the fewest messages that
// follow each other, for small buffers. All ranks add in the same order up to commutation, so all get the same bits.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/recursive.hpp"

namespace weft {
namespace {

void all_gather(Holdings& holdings, const ProgramRequest& request) {
  const FoldedRanks folding(request.ranks);
  const std::int64_t parts = request.parts;
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.copy({.from = folding.folded(i),
                   .to = folding.folded_into(i),
                   .pieces = consecutive(folding.folded(i) * parts, parts),
                   .messages = parts});
  }
  for (std::int64_t bit = 1; bit < folding.workers(); bit *= 2) {
    // A rank's own slice must lie beside the others' in the output once messages have more than one slice.
    if (bit > 1 || folding.extra() > 0) holdings.settle();
    for (std::int64_t worker = 0; worker < folding.workers(); ++worker) {
      const std::int64_t first = worker / bit * bit;
      holdings.copy({.from = folding.rank_of(worker),
                     .to = folding.rank_of(worker ^ bit),
                     .pieces = pieces_of_ranks(folding, first, first + bit, parts),
                     .messages = parts});
    }
  }
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    const std::int64_t rank = folding.folded(i);
    const std::int64_t behind = request.ranks - rank - 1;
    for (const Pieces& missing : {consecutive(0, rank * parts), consecutive((rank + 1) * parts, behind * parts)}) {
      holdings.copy({.from = folding.folded_into(i), .to = rank, .pieces = missing, .messages = parts});
    }
  }
}

// Both sides still send their old sum when the partner's arrives, so sums alternate between two places: the output in
// the last round, scratch before that, and a second scratch where the input occupies the output.
class Places {
 public:
  Places(Holdings& holdings, std::int64_t rounds) : holdings_(holdings), rounds_(rounds) {}

  SlotRef folded() const { return {BufferKind::scratch, pieces()}; }
  SlotRef in_round(std::int64_t rank, std::int64_t round) const {
    if ((rounds_ - 1 - round) % 2 == 1) return {BufferKind::scratch, 0};
    const SlotRef output = holdings_.room(rank, 0);
    return holdings_.at(rank, 0) == output ? folded() : output;
  }

 private:
  std::int64_t pieces() const { return holdings_.builder().spec().pieces; }

  Holdings& holdings_;
  std::int64_t rounds_;
};

void all_reduce(Holdings& holdings, const ProgramRequest& request) {
  const FoldedRanks folding(request.ranks);
  const std::int64_t rounds = ceil_log2(folding.workers());
  const Places places(holdings, rounds);
  const Pieces all = consecutive(0, request.parts);
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.reduce({.from = folding.folded(i),
                     .to = folding.folded_into(i),
                     .pieces = all,
                     .messages = request.parts,
                     .dst = places.folded()});
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<SlotRef> before;
    for (std::int64_t worker = 0; worker < folding.workers(); ++worker) {
      before.push_back(holdings.at(folding.rank_of(worker), 0));
    }
    for (std::int64_t worker = 0; worker < folding.workers(); ++worker) {
      const std::int64_t to = folding.rank_of(worker ^ (std::int64_t{1} << round));
      holdings.reduce({.from = folding.rank_of(worker),
                       .to = to,
                       .pieces = all,
                       .messages = request.parts,
                       .src = before[worker],
                       .dst = places.in_round(to, round)});
    }
  }
  for (std::int64_t i = 0; i < folding.extra(); ++i) {
    holdings.copy({.from = folding.folded_into(i), .to = folding.folded(i), .pieces = all, .messages = request.parts});
  }
}

}  // namespace

Program recursive_doubling_program(const ProgramRequest& request) {
  const bool gathers = request.kind == Collective::all_gather;
  ProgramBuilder builder = builder_for(request, gathers ? request.ranks * request.parts : request.parts);
  Holdings holdings(builder);
  gathers ? all_gather(holdings, request) : all_reduce(holdings, request);
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
