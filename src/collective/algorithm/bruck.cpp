// Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing systems", 1997:
// ceil(log2 N) messages that follow each other, for any number of ranks. For small buffers: what a rank receives has to
// be put in order by copies of its own, and all_to_all carries most pieces more than once.
#include <algorithm>
#include <utility>

#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

// A rank keeps the slices of ranks r, r+1, ... in this order and doubles their number every round.
void all_gather(Holdings& holdings, const ProgramRequest& request) {
  const std::int64_t ranks = request.ranks;
  const std::int64_t parts = request.parts;
  const auto slices_from = [&](std::int64_t first, std::int64_t count) {
    Pieces pieces;
    for (std::int64_t i = 0; i < count * parts; ++i) pieces.push_back((first * parts + i) % (ranks * parts));
    return pieces;
  };
  // For rank 0 this order is that of the output.
  const auto shelf = [&](std::int64_t rank, std::int64_t slice) {
    return SlotRef{rank == 0 ? BufferKind::output : BufferKind::scratch, slice * parts};
  };
  for (std::int64_t have = 1; have < ranks; have *= 2) {
    const std::int64_t count = std::min(have, ranks - have);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t to = wrapped(rank - have, ranks);
      holdings.copy(
          {.from = rank, .to = to, .pieces = slices_from(rank, count), .messages = parts, .dst = shelf(to, have)});
    }
    if (have > 1) continue;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      holdings.copy({.from = rank, .to = rank, .pieces = slices_from(rank, 1), .dst = shelf(rank, 0)});
    }
  }
}

// all_to_all: a piece that has j ranks to go travels 2^k further in round k where j has bit k. What leaves together is
// first copied together.
class AllToAll {
 public:
  explicit AllToAll(ProgramBuilder& builder)
      : builder_(builder), ranks_(builder.spec().ranks), parts_(builder.spec().pieces / ranks_) {
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      auto& at = at_.emplace_back();
      for (std::int64_t j = 0; j < ranks_; ++j) at.push_back({BufferKind::input, wrapped(rank + j, ranks_) * parts_});
    }
  }

  void run() {
    for (std::int64_t bit = 1; bit < ranks_; bit *= 2) round(bit);
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      for (std::int64_t j = 0; j < ranks_; ++j) {
        builder_.copy({rank, place(rank, j)}, output_of(rank, wrapped(rank - j, ranks_) * parts_), parts_);
      }
    }
  }

 private:
  SlotRef& place(std::int64_t rank, std::int64_t j) { return at_[rank][j]; }

  void round(std::int64_t bit) {
    std::vector<std::int64_t> leaving;
    for (std::int64_t j = 0; j < ranks_; ++j) {
      if ((j & bit) != 0) leaving.push_back(j);
    }
    const std::int64_t slots = static_cast<std::int64_t>(leaving.size()) * parts_;
    const std::int64_t outgoing = next_slot_;
    const std::int64_t incoming = next_slot_ + slots;
    next_slot_ += 2 * slots;
    for (std::int64_t rank = 0; rank < ranks_; ++rank) pack(rank, leaving, outgoing);
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      const std::int64_t to = wrapped(rank + bit, ranks_);
      copy_in_parts(builder_, scratch_of(rank, outgoing), scratch_of(to, incoming), slots, parts_);
    }
    for (std::int64_t rank = 0; rank < ranks_; ++rank) {
      std::int64_t slot = incoming;
      for (const std::int64_t j : leaving) place(rank, j) = {BufferKind::scratch, std::exchange(slot, slot + parts_)};
    }
  }

  void pack(std::int64_t rank, const std::vector<std::int64_t>& leaving, std::int64_t slot) {
    for (const std::int64_t j : leaving) {
      builder_.copy({rank, place(rank, j)}, scratch_of(rank, std::exchange(slot, slot + parts_)), parts_);
    }
  }

  ProgramBuilder& builder_;
  std::int64_t ranks_, parts_;
  std::int64_t next_slot_ = 0;
  std::vector<std::vector<SlotRef>> at_;  // by rank and ranks to go: the first slot
};

// Dissemination in which every rank counts once, for any N (Bruck and Ho, "Efficient global combine operations", 1993).
// B(w) is the sum of the w ranks behind a rank, A(w+1) the same with its own. Reading N-1 bit by bit from the top,
//   B(2w) = B(w) + B(w) of the rank w on,   B(2w+1) = B(w) + A(w+1) of the rank w+1 on;
// in the end B(N-1) and the own contribution are all. (For data every rank would add in a different order.)
void barrier(ProgramBuilder& builder) {
  const std::int64_t ranks = builder.spec().ranks;
  const auto behind = [](std::int64_t rank, std::int64_t round) { return scratch_of(rank, round % 2); };
  std::int64_t width = 0;
  for (std::int64_t round = 0; round < ceil_log2(ranks); ++round) {
    const bool odd = ((ranks - 1) >> (ceil_log2(ranks) - 1 - round) & 1) != 0;
    for (std::int64_t rank = 0; odd && width > 0 && rank < ranks; ++rank) {
      builder.copy(input_of(rank, 0), scratch_of(rank, 2));
      builder.reduce(behind(rank, round), scratch_of(rank, 2));
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const std::int64_t source = wrapped(rank + width + (odd ? 1 : 0), ranks);
      if (width == 0) {
        builder.copy(input_of(source, 0), behind(rank, round + 1));
      } else {
        builder.reduce(odd ? scratch_of(source, 2) : behind(source, round), behind(rank, round),
                       behind(rank, round + 1), 1);
      }
    }
    width = 2 * width + (odd ? 1 : 0);
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    builder.copy(input_of(rank, 0), output_of(rank, 0));
    builder.reduce(behind(rank, ceil_log2(ranks)), output_of(rank, 0));
  }
}

}  // namespace

Program bruck_program(const ProgramRequest& request) {
  ProgramBuilder builder =
      builder_for(request, request.kind == Collective::barrier ? 1 : request.ranks * request.parts);
  if (request.kind == Collective::barrier) {
    barrier(builder);
  } else if (request.kind == Collective::all_to_all) {
    AllToAll(builder).run();
  } else {
    Holdings holdings(builder);
    all_gather(holdings, request);
    holdings.settle();
  }
  return std::move(builder).finish();
}

}  // namespace weft
