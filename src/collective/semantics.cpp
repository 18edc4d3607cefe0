#include "collective/semantics.hpp"

#include "base/enum_name.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

std::int64_t slots_per_rank(const CollectiveSpec& spec) {
  return spec.pieces / spec.ranks;
}

}  // namespace

std::string_view name_of(ReduceOp op) {
  static constexpr std::string_view kNames[] = {"sum", "average", "max", "min"};
  return enum_name(kNames, op);
}

bool has_root(Collective kind) {
  return kind == Collective::broadcast || kind == Collective::reduce || kind == Collective::gather ||
         kind == Collective::scatter || kind == Collective::send_recv;
}

bool reduces(Collective kind) {
  return kind == Collective::reduce || kind == Collective::reduce_scatter || kind == Collective::all_reduce ||
         kind == Collective::barrier;
}

bool is_divided(Collective kind) {
  return kind == Collective::all_gather || kind == Collective::gather || kind == Collective::reduce_scatter ||
         kind == Collective::scatter || kind == Collective::all_to_all;
}

void validate(const CollectiveSpec& spec, std::string_view what) {
  if (spec.ranks < 1) fail("{}: {} ranks; at least 1 is needed", what, spec.ranks);
  if (spec.kind == Collective::send_recv && spec.ranks != 2) {
    fail("{}: send_recv has 2 ranks, not {}", what, spec.ranks);
  }
  if (spec.pieces < 1) fail("{}: {} pieces; at least 1 is needed", what, spec.pieces);
  if (spec.root < 0 || spec.root >= spec.ranks) fail("{}: root {} is not in 0..{}", what, spec.root, spec.ranks - 1);
  if (is_divided(spec.kind) && spec.pieces % spec.ranks != 0) {
    fail("{}: {} pieces cannot be divided among {} ranks; a multiple is needed", what, spec.pieces, spec.ranks);
  }
}

std::int64_t piece_count(const CollectiveSpec& spec) {
  return spec.kind == Collective::all_to_all ? spec.ranks * spec.pieces : spec.pieces;
}

std::int64_t input_slots(const CollectiveSpec& spec, std::int64_t rank) {
  if (rank >= spec.ranks) return 0;  // a helper of the program, no member of the collective
  switch (spec.kind) {
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::send_recv:
      return rank == spec.root ? spec.pieces : 0;
    case Collective::gather:
    case Collective::all_gather:
      return slots_per_rank(spec);
    default:
      return spec.pieces;
  }
}

std::int64_t output_slots(const CollectiveSpec& spec, std::int64_t rank) {
  if (rank >= spec.ranks) return 0;
  switch (spec.kind) {
    case Collective::reduce:
    case Collective::gather:
      return rank == spec.root ? spec.pieces : 0;
    case Collective::send_recv:
      return rank == spec.root ? 0 : spec.pieces;
    case Collective::scatter:
    case Collective::reduce_scatter:
      return slots_per_rank(spec);
    default:
      return spec.pieces;
  }
}

Content initial_content(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot) {
  std::int64_t piece = slot;
  if (spec.kind == Collective::gather || spec.kind == Collective::all_gather) piece += rank * slots_per_rank(spec);
  if (spec.kind == Collective::all_to_all) piece += rank * spec.pieces;
  return {piece, RankSet::only(rank)};
}

Content required_content(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot) {
  switch (spec.kind) {
    case Collective::broadcast:
    case Collective::send_recv:
      return {slot, RankSet::only(spec.root)};
    case Collective::scatter:
      return {rank * slots_per_rank(spec) + slot, RankSet::only(spec.root)};
    case Collective::gather:
    case Collective::all_gather:
      return {slot, RankSet::only(slot / slots_per_rank(spec))};
    case Collective::reduce_scatter:
      return {rank * slots_per_rank(spec) + slot, RankSet::first(spec.ranks)};
    case Collective::all_to_all: {
      const std::int64_t source = slot / slots_per_rank(spec);
      const std::int64_t within = slot % slots_per_rank(spec);
      return {source * spec.pieces + rank * slots_per_rank(spec) + within, RankSet::only(source)};
    }
    default:
      return {slot, RankSet::first(spec.ranks)};
  }
}

std::int64_t in_place_slot_of_input(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot) {
  const bool part = spec.kind == Collective::all_gather || (spec.kind == Collective::gather && rank == spec.root);
  return part ? rank * slots_per_rank(spec) + slot : slot;
}

std::int64_t in_place_slot_of_output(const CollectiveSpec& spec, std::int64_t rank, std::int64_t slot) {
  const bool part = spec.kind == Collective::reduce_scatter || (spec.kind == Collective::scatter && rank == spec.root);
  return part ? rank * slots_per_rank(spec) + slot : slot;
}

}  // namespace weft
