#include "graph/op_lists.hpp"

namespace weft {

template <class ForEachValue>
OpLists::OpLists(const StepGraph& graph, ForEachValue for_each_value) : begin_(graph.values.size() + 1, 0) {
  for (const Operation& op : graph.operations) {
    for_each_value(op, [&](ValueId value) { ++begin_[value.index() + 1]; });
  }
  for (std::size_t v = 1; v < begin_.size(); ++v) begin_[v] += begin_[v - 1];
  operations_.resize(begin_.back());
  std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for_each_value(graph.operations[i], [&](ValueId value) { operations_[next[value.index()]++] = make_id<OpId>(i); });
  }
}

OpLists writers_by_value(const StepGraph& graph) {
  return {graph, [](const Operation& op, auto visit) {
            for (const Write& write : op.writes) visit(write.value);
          }};
}

OpLists readers_by_value(const StepGraph& graph) {
  return {graph, [](const Operation& op, auto visit) {
            for (const Read& read : op.reads) visit(read.value);
          }};
}

}  // namespace weft
