// Which rows of the experts' slots are in use, where that is data: a part of a micro-batch's tokens, or experts whose
// exchange has the sizes that the gate found. Forward and back have tables of their own, as they may be cut
// differently.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/element_range.hpp"
#include "graph/step_graph.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// Windows of rows within blocks of an expert's capacity.
struct ExpertTable {
  std::vector<ElementRange> outgoing;  // of this rank's tokens, by expert
  std::vector<ElementRange> incoming;  // of what this rank's experts get, by source and expert
};

class ExpertWindows {
 public:
  struct Shape {
    std::int64_t ranks = 1;     // that share the experts
    std::int64_t experts = 0;   // of all of them
    std::int64_t capacity = 0;  // slots of an expert for the tokens of one rank
    std::int64_t choices = 0;   // of all tokens of a rank
  };
  explicit ExpertWindows(const Shape& shape) : shape_(shape) {}

  const Shape& shape() const { return shape_; }
  // Made at the first call, with windows as balanced loads would fill them. It stays where it is.
  ExpertTable& of(const Operation& op, std::int32_t micro_batch, const Origin& part);
  // The rows in use of all parts, in the direction of `phase`, by source and expert. Empty where there is no table.
  void join(std::int32_t layer, std::int32_t micro_batch, Phase phase, std::vector<ElementRange>& joined) const;

 private:
  using Key = std::tuple<std::int32_t, std::int32_t, bool, std::int64_t, std::int64_t, std::int64_t>;
  Shape shape_;
  std::map<Key, ExpertTable> tables_;
};

// What rows of `routing` (kernels/experts.hpp) use, by expert.
void find_windows(const Matrix& routing, std::int64_t capacity, std::span<ElementRange> by_expert);

}  // namespace weft
