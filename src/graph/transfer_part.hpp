// A part of a transfer: a policy may cut a once-a-step gradient reduction or parameter gather into parts, so that an
// urgent one need not wait for the whole of a large one.
//
// A part names one origin and the pieces begin..end of `of` along axis 0; it reads and writes the same values as its
// origin, and whoever reads them waits for all parts. Of a value with E elements a part of an all_reduce touches the
// elements floor(E begin / of) to floor(E end / of). A part of a reduce_scatter or an all_gather touches that range of
// every rank's shard (of ceil(E / ranks) elements), so the parts of all ranks are whole transfers of their own.
#pragma once

#include <cstdint>

#include "graph/step_graph.hpp"

namespace weft {

// No transfer is cut into more parts than this.
inline constexpr std::int64_t kMaxCuts = 1024;

bool is_whole(const Origin& origin);
bool is_part(const Operation& operation);

// Whether an operation is of those that may be cut: it runs once a step, is a gradient reduction or a parameter gather
// and has one value in and one out.
bool may_be_cut(const StepGraph& graph, const Operation& operation);

// What floor() above is taken of: the elements of the value (all_reduce) or of a shard, and the bytes that one of them
// stands for in `bytes` of the communication.
struct CutLength {
  std::int64_t elements = 0;
  std::int64_t bytes_each = 0;
};
CutLength cut_length(const StepGraph& graph, const Operation& operation);

struct ElementRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};
// The elements that a part touches out of `elements`.
ElementRange part_range(std::int64_t elements, const Origin& part);
// What a part of `whole` carries. Those of all parts add up to the bytes of the whole.
Bytes part_bytes(const StepGraph& graph, const Operation& whole, const Origin& part);

}  // namespace weft
