// Tensors put together from shards whose ends lie anywhere.
#include "exec/tensor_collector.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace weft {
namespace {

// A weight of 2 x 3 and a bias of 4, one after the other: elements 0..5 and 6..9.
ParameterState two_tensors() {
  ParameterState p;
  p.elements = 10;
  p.tensors = {{.whole = {.name = "b.weight", .shape = {2, 3}}, .offset = 0, .rows = {{0, 2}}, .columns = {0, 3}},
               {.whole = {.name = "a.bias", .shape = {4}}, .offset = 6, .rows = {{0, 4}}, .columns = {0, 1}}};
  return p;
}

TEST(TensorCollector, PutsShardsTogetherWhateverTheirEnds) {
  const ParameterState p = two_tensors();
  std::vector<float> whole(10);
  std::iota(whole.begin(), whole.end(), 1.0F);
  for (std::int64_t cut = 0; cut <= 10; ++cut) {
    TensorCollector collector;
    // The last shard first: ranks come in any order.
    collector.add(p, {cut, 10}, std::span(whole).subspan(cut));
    collector.add(p, {0, cut}, std::span(whole).first(cut));
    const std::vector<NamedTensor> tensors = collector.take();
    ASSERT_EQ(tensors.size(), 2);
    EXPECT_EQ(tensors[0].name, "a.bias");
    EXPECT_EQ(tensors[0].shape, std::vector<std::int64_t>{4});
    EXPECT_EQ(tensors[0].data, (std::vector<float>{7, 8, 9, 10}));
    EXPECT_EQ(tensors[1].name, "b.weight");
    EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(tensors[1].data, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_TRUE(collector.take().empty());
  }
}

// ZeRO pads the whole so that shards are equal: what lies beyond the last tensor belongs to none.
TEST(TensorCollector, LeavesPaddingOut) {
  TensorCollector collector;
  std::vector<float> shard = {9, 10, 77, 77};
  collector.add(two_tensors(), {8, 12}, {shard.data(), 4});
  EXPECT_EQ(collector.take()[0].data, (std::vector<float>{0, 0, 9, 10}));
}

// By hand: of a 2 x 4 matrix one rank holds columns 0 and 1, the other the rest.
TEST(TensorCollector, PutsColumnsTogether) {
  TensorCollector collector;
  std::vector<float> left{1, 2, 5, 6}, right{3, 4, 7, 8};
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    ParameterState p;
    p.elements = 4;
    p.tensors = {{.whole = {.name = "w", .shape = {2, 4}}, .rows = {{0, 2}}, .columns = {2 * rank, 2 * rank + 2}}};
    collector.add(p, {0, 4}, {rank == 0 ? left.data() : right.data(), 4});
  }
  EXPECT_EQ(collector.take()[0].data, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

}  // namespace
}  // namespace weft
