// How a tensor is spread over ranks: which of its dimensions is split over which axis of a mesh. This is stated once,
// with the tensor; what a rank holds, and what travels to make a tensor whole, follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/element_range.hpp"
#include "graph/layout.hpp"

namespace weft {

// How the ranks of an axis share a dimension.
enum class Share : std::uint8_t {
  blocks,     // rank r of n has the r-th of n equal blocks
  sequences,  // the dimension holds consecutive sequences, and rank r has the r-th block of each
  mirrored    // of every sequence in 2 n blocks, rank r has the r-th and the r-th from the end: with causal attention
              // all have the same to compute. Where 2 n does not divide the sequence, as `sequences`
};
std::string_view name_of(Share share);

struct Split {
  std::int32_t dim = 0;
  Axis axis = Axis::tp;
  Share share = Share::blocks;
  friend bool operator==(const Split&, const Split&) = default;
};

// How a rank's part of a tensor relates to the whole.
struct Sharding {
  std::vector<Split> splits = {};
  std::vector<Axis> partial = {};  // ranks of these axes each have a summand of every element
  friend bool operator==(const Sharding&, const Sharding&) = default;

  bool is_partial(Axis axis) const;
  // How the rows are shared over an axis, where they are.
  std::optional<Share> rows_over(Axis axis) const;
  void add_split(const Split& split) { splits.push_back(split); }
  void add_partial(Axis axis);
  void remove(Axis axis);  // afterwards every rank of the axis has the whole
};
// Returns the sharding of rows alone, which the result of a product inherits from its input.
Sharding of_rows(const Sharding& sharding);

// A rank among those of an axis.
struct AxisPlace {
  std::int64_t rank = 0, ranks = 1;
};

// Returns the positions of a sequence that a rank has, as ascending ranges.
std::vector<ElementRange> positions_of(Share share, std::int64_t sequence, AxisPlace place);

// Returns where the rows `of_share` of a rank's share lie in the rows of a whole value, which has so many `sequences`
// of equal length. Neighbouring ranges are joined.
struct WholeRows {
  std::int64_t rows = 0, sequences = 1;
};
std::vector<ElementRange> rows_of_share(Share share, WholeRows whole, AxisPlace place, ElementRange of_share);

}  // namespace weft
