// What algorithms are made of: reduce_scatter and all_gather inside a list of ranks, over a ring or between all pairs,
// and chains. Rings, parameter servers and hierarchical collectives are sequences of these.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collective/algorithm/holdings.hpp"
#include "collective/algorithms.hpp"

namespace weft {

std::int64_t wrapped(std::int64_t rank, std::int64_t ranks);  // rank modulo ranks, never negative
std::int64_t ceil_log2(std::int64_t n);

// Returns a builder with the algorithm's name and the request's spec with so many pieces.
ProgramBuilder builder_for(const ProgramRequest& request, std::int64_t pieces, std::int64_t helpers = 0);

// Copies pieces; between ranks in so many messages.
void copy_in_parts(ProgramBuilder& builder, Spot from, Spot to, std::int64_t count, std::int64_t parts);

// Some ranks, and the pieces that each of them reduces or gathers: its slice, as one or several ranges of pieces.
struct Group {
  std::vector<std::int64_t> members;
  std::function<std::vector<Pieces>(std::int64_t index)> slice;  // of members[index]
  std::int64_t parts = 1;                                        // messages for each range
  std::int64_t channel = 0;

  std::int64_t size() const { return static_cast<std::int64_t>(members.size()); }
  std::int64_t member(std::int64_t index) const { return members[wrapped(index, size())]; }
};

// All ranks of the collective; the slice of rank r is pieces r P/N ... of it.
Group whole_group(const CollectiveSpec& spec, std::int64_t parts);

// Every member ends with the sum of its slice. Ring: slice i starts behind member i and is complete when it gets there.
void ring_reduce_scatter(Holdings& holdings, const Group& group);
void direct_reduce_scatter(Holdings& holdings, const Group& group);
// Every member starts with its slice and ends with all.
void ring_all_gather(Holdings& holdings, const Group& group);
void direct_all_gather(Holdings& holdings, const Group& group);

// Sends pieces along the ranks from the first to the last; chain_reduce adds them up on the way.
void chain_broadcast(Holdings& holdings, const std::vector<std::int64_t>& chain, const Pieces& pieces);
void chain_reduce(Holdings& holdings, const std::vector<std::int64_t>& chain, const Pieces& pieces);

}  // namespace weft
