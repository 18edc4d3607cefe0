// All pairs at once: every message goes straight to the rank that needs it, and no message waits for another. This has
// the fewest sequential messages, but many share a link. all_reduce sends every input to every rank, which adds all
// inputs in the order of the ranks, so all get the same bits.
#include "collective/algorithm/generators.hpp"
#include "collective/algorithm/phases.hpp"

namespace weft {
namespace {

// In place the inputs must stay until they are sent, so sums grow in scratch.
void add_everything_everywhere(ProgramBuilder& builder) {
  const std::int64_t ranks = builder.spec().ranks;
  const auto sum_at = [&](std::int64_t rank, std::int64_t piece) {
    return builder.in_place() ? scratch_of(rank, piece) : output_of(rank, piece);
  };
  for (std::int64_t piece = 0; piece < builder.spec().pieces; ++piece) {
    for (std::int64_t source = 0; source < ranks; ++source) {
      for (std::int64_t distance = 0; distance < ranks; ++distance) {  // not all to the same rank first
        const std::int64_t rank = wrapped(source + distance, ranks);
        const Spot sum = sum_at(rank, piece);
        const Spot from = input_of(source, piece);
        if (source == 0) {
          builder.copy(from, sum);
        } else {
          builder.reduce(from, sum);
        }
      }
    }
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    builder.copy(sum_at(rank, 0), output_of(rank, 0), builder.spec().pieces);
  }
}

// gather, scatter, broadcast, reduce and send_recv: between the root and every other rank.
void move_at_root(Holdings& holdings, const ProgramRequest& request) {
  const Collective kind = request.kind;
  for (std::int64_t distance = 1; distance < request.ranks; ++distance) {
    const std::int64_t other = wrapped(request.root + distance, request.ranks);
    const bool divided = kind == Collective::gather || kind == Collective::scatter;
    const bool to_root = kind == Collective::gather || kind == Collective::reduce;
    const Move move{.from = to_root ? other : request.root,
                    .to = to_root ? request.root : other,
                    .pieces = consecutive(divided ? other * request.parts : 0, request.parts),
                    .messages = request.parts};
    kind == Collective::reduce ? holdings.reduce(move) : holdings.copy(move);
  }
}

}  // namespace

void exchange_pairs(ProgramBuilder& builder) {
  const std::int64_t ranks = builder.spec().ranks;
  const std::int64_t parts = builder.spec().pieces / ranks;
  // In place an arriving piece must not overwrite one that has still to leave.
  const auto landing = [&](std::int64_t rank, std::int64_t slot) {
    return builder.in_place() ? scratch_of(rank, slot) : output_of(rank, slot);
  };
  for (std::int64_t distance = 1; distance < ranks; ++distance) {
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t from = 0; from < ranks; ++from) {
        const std::int64_t to = wrapped(from + distance, ranks);
        const std::int64_t slot = builder.in_place() ? (distance - 1) * parts + part : from * parts + part;
        builder.copy(input_of(from, to * parts + part), landing(to, slot));
      }
    }
  }
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    builder.copy(input_of(rank, rank * parts), output_of(rank, rank * parts), parts);
    if (!builder.in_place()) continue;
    for (std::int64_t distance = 1; distance < ranks; ++distance) {
      const std::int64_t source = wrapped(rank - distance, ranks);
      builder.copy(scratch_of(rank, (distance - 1) * parts), output_of(rank, source * parts), parts);
    }
  }
}

Program direct_program(const ProgramRequest& request) {
  ProgramBuilder builder =
      builder_for(request, is_divided(request.kind) ? request.ranks * request.parts : request.parts);
  switch (request.kind) {
    case Collective::all_reduce:
    case Collective::barrier:
      add_everything_everywhere(builder);
      return std::move(builder).finish();
    case Collective::all_to_all:
      exchange_pairs(builder);
      return std::move(builder).finish();
    default:
      break;
  }
  Holdings holdings(builder);
  const Group group = whole_group(builder.spec(), request.parts);
  if (request.kind == Collective::all_gather) {
    direct_all_gather(holdings, group);
  } else if (request.kind == Collective::reduce_scatter) {
    direct_reduce_scatter(holdings, group);
  } else {
    move_at_root(holdings, request);
  }
  holdings.settle();
  return std::move(builder).finish();
}

}  // namespace weft
