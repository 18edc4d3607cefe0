// The operations that write or read each value, in two arrays: planning asks for them often, and a vector for every
// value would cost more to make than to use.
#pragma once

#include <span>
#include <vector>

#include "graph/step_graph.hpp"

namespace weft {

class OpLists {
 public:
  // Indexed by ValueId::index(). Operations are in order; one that names a value twice is listed twice.
  std::span<const OpId> operator[](std::size_t value) const {
    return std::span(operations_).subspan(begin_[value], begin_[value + 1] - begin_[value]);
  }

 private:
  friend OpLists writers_by_value(const StepGraph& graph);
  friend OpLists readers_by_value(const StepGraph& graph);
  template <class ForEachValue>
  OpLists(const StepGraph& graph, ForEachValue for_each_value);

  std::vector<OpId> operations_;
  std::vector<std::size_t> begin_;  // by value, and the end of the last
};

OpLists writers_by_value(const StepGraph& graph);
OpLists readers_by_value(const StepGraph& graph);

}  // namespace weft
