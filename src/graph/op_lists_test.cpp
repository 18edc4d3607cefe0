#include "graph/op_lists.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

std::vector<OpId> listed(std::span<const OpId> operations) {
  return {operations.begin(), operations.end()};
}

TEST(OpLists, NameWritersAndReadersInOrderOfOperation) {
  StepGraph graph;
  graph.values.resize(3);
  graph.operations.resize(3);
  graph.operations[0].writes = {{Operand::output, ValueId{1}}};
  graph.operations[1].reads = {{Operand::input, ValueId{1}}, {Operand::weight, ValueId{0}, 1}};
  graph.operations[1].writes = {{Operand::output, ValueId{0}}};
  graph.operations[2].reads = {{Operand::input, ValueId{1}}, {Operand::weight, ValueId{1}, 1}};
  graph.operations[2].writes = {{Operand::output, ValueId{1}}};
  const OpLists writers = writers_by_value(graph), readers = readers_by_value(graph);
  EXPECT_EQ(listed(writers[0]), (std::vector{OpId{1}}));
  EXPECT_EQ(listed(writers[1]), (std::vector{OpId{0}, OpId{2}}));
  EXPECT_TRUE(writers[2].empty());
  EXPECT_EQ(listed(readers[0]), (std::vector{OpId{1}}));
  EXPECT_EQ(listed(readers[1]), (std::vector{OpId{1}, OpId{2}, OpId{2}}));
  EXPECT_TRUE(readers[2].empty());
}

}  // namespace
}  // namespace weft
