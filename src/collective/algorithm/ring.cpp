// Rings: every rank sends to the next one only. A reduce_scatter passes N-1 partial sums around, an all_gather N-1
// finished slices; all_reduce is the one after the other.
#include "collective/algorithm/generators.hpp"
#include "collective/program_builder.hpp"

namespace weft {
namespace {

std::int64_t wrapped(std::int64_t rank, std::int64_t ranks) {
  return (rank % ranks + ranks) % ranks;
}

// Where the slice that a rank reduces or gathers begins in the buffer that all ranks have in full.
Spot slice_in(const ProgramBuilder& builder, BufferKind buffer, std::int64_t rank, std::int64_t slice,
              std::int64_t part) {
  const std::int64_t per_slice = builder.spec().pieces / builder.spec().ranks;
  return {rank, {buffer, slice * per_slice + part}};
}

// Slice s starts at rank s+1 and ends, complete, at rank s. `sum_at` says where a rank keeps its partial sum.
template <class SumAt>
void reduce_around(ProgramBuilder& builder, const SumAt& sum_at) {
  const std::int64_t ranks = builder.spec().ranks;
  const std::int64_t parts = builder.spec().pieces / ranks;
  for (std::int64_t hop = 0; hop + 1 < ranks; ++hop) {
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t slice = wrapped(rank - 1 - hop, ranks);
        const std::int64_t next = wrapped(rank + 1, ranks);
        const Spot from =
            hop == 0 ? slice_in(builder, BufferKind::input, rank, slice, part) : sum_at(rank, slice, part);
        builder.reduce(from, slice_in(builder, BufferKind::input, next, slice, part), sum_at(next, slice, part), 1);
      }
    }
  }
}

// Slice s starts at rank s, in its output.
void gather_around(ProgramBuilder& builder) {
  const std::int64_t ranks = builder.spec().ranks;
  const std::int64_t parts = builder.spec().pieces / ranks;
  for (std::int64_t hop = 0; hop + 1 < ranks; ++hop) {
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t slice = wrapped(rank - hop, ranks);
        builder.copy(slice_in(builder, BufferKind::output, rank, slice, part),
                     slice_in(builder, BufferKind::output, wrapped(rank + 1, ranks), slice, part));
      }
    }
  }
}

}  // namespace

Program ring_program(const ProgramRequest& request) {
  const CollectiveSpec spec{request.kind, request.ranks, request.root, request.ranks * request.parts};
  ProgramBuilder builder("ring", spec, request.in_place);
  const std::int64_t parts = request.parts;
  if (request.kind == Collective::all_reduce) {
    const auto sum_at = [&](std::int64_t rank, std::int64_t slice, std::int64_t part) {
      return slice_in(builder, BufferKind::output, rank, slice, part);
    };
    reduce_around(builder, sum_at);
    gather_around(builder);
  }
  if (request.kind == Collective::reduce_scatter) {
    // Out of place the partial sums of other ranks' slices pass through scratch.
    const auto sum_at = [&](std::int64_t rank, std::int64_t slice, std::int64_t part) -> Spot {
      if (slice == rank) return output_of(rank, part);
      if (request.in_place) return slice_in(builder, BufferKind::input, rank, slice, part);
      return scratch_of(rank, slice * parts + part);
    };
    reduce_around(builder, sum_at);
  }
  if (request.kind == Collective::all_gather) {
    for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
      builder.copy(input_of(rank, 0), slice_in(builder, BufferKind::output, rank, rank, 0), parts);
    }
    gather_around(builder);
  }
  return std::move(builder).finish();
}

}  // namespace weft
