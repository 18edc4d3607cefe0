#include "collective/algorithm/phases.hpp"

#include <bit>

#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

void move_slice(Holdings& holdings, const Group& group, std::int64_t slice, std::int64_t from, std::int64_t to,
                bool reduce) {
  for (Pieces& run : group.slice(wrapped(slice, group.size()))) {
    const Move move{.from = group.member(from),
                    .to = group.member(to),
                    .pieces = std::move(run),
                    .messages = group.parts,
                    .channel = group.channel};
    reduce ? holdings.reduce(move) : holdings.copy(move);
  }
}

}  // namespace

std::int64_t wrapped(std::int64_t rank, std::int64_t ranks) {
  return (rank % ranks + ranks) % ranks;
}

std::int64_t ceil_log2(std::int64_t n) {
  return std::bit_width(static_cast<std::uint64_t>(n - 1));
}

ProgramBuilder builder_for(const ProgramRequest& request, std::int64_t pieces, std::int64_t helpers) {
  return {std::string(name_of(request.algorithm)),
          {request.kind, request.ranks, request.root, pieces},
          request.in_place,
          helpers};
}

void copy_in_parts(ProgramBuilder& builder, Spot from, Spot to, std::int64_t count, std::int64_t parts) {
  if (from.rank == to.rank) return builder.copy(from, to, count);
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t begin = part_begin(count, parts, part);
    builder.copy({from.rank, {from.slot.buffer, from.slot.slot + begin}},
                 {to.rank, {to.slot.buffer, to.slot.slot + begin}}, part_begin(count, parts, part + 1) - begin);
  }
}

Group whole_group(const CollectiveSpec& spec, std::int64_t parts) {
  const std::int64_t width = spec.pieces / spec.ranks;
  return {consecutive(0, spec.ranks),
          [width](std::int64_t index) { return std::vector<Pieces>{consecutive(index * width, width)}; }, parts, 0};
}

void ring_reduce_scatter(Holdings& holdings, const Group& group) {
  for (std::int64_t hop = 0; hop + 1 < group.size(); ++hop) {
    for (std::int64_t i = 0; i < group.size(); ++i) move_slice(holdings, group, i - 1 - hop, i, i + 1, true);
  }
}

void ring_all_gather(Holdings& holdings, const Group& group) {
  for (std::int64_t hop = 0; hop + 1 < group.size(); ++hop) {
    for (std::int64_t i = 0; i < group.size(); ++i) move_slice(holdings, group, i - hop, i, i + 1, false);
  }
}

// Goes by distance, so that in no round two members write to the same third one.
void direct_reduce_scatter(Holdings& holdings, const Group& group) {
  for (std::int64_t distance = 1; distance < group.size(); ++distance) {
    for (std::int64_t i = 0; i < group.size(); ++i) move_slice(holdings, group, i + distance, i, i + distance, true);
  }
}

void direct_all_gather(Holdings& holdings, const Group& group) {
  for (std::int64_t distance = 1; distance < group.size(); ++distance) {
    for (std::int64_t i = 0; i < group.size(); ++i) move_slice(holdings, group, i, i, i + distance, false);
  }
}

void chain_broadcast(Holdings& holdings, const std::vector<std::int64_t>& chain, const Pieces& pieces) {
  for (const std::int64_t piece : pieces) {
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
      holdings.copy({.from = chain[i], .to = chain[i + 1], .pieces = {piece}});
    }
  }
}

void chain_reduce(Holdings& holdings, const std::vector<std::int64_t>& chain, const Pieces& pieces) {
  for (const std::int64_t piece : pieces) {
    for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
      holdings.reduce({.from = chain[i], .to = chain[i + 1], .pieces = {piece}});
    }
  }
}

}  // namespace weft
