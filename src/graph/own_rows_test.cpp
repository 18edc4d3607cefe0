// Products that begin with a rank's own rows.
#include "graph/own_rows.hpp"

#include <gtest/gtest.h>

#include "graph/operation_part.hpp"
#include "graph/test_graphs.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// 64 rows of 4 ranks: 16 own ones, and a quarter of the other 48 in each of 4 parts.
TEST(OwnRows, AndThoseOfOthersAreAllRows) {
  const auto piece = [](std::int64_t i, std::int64_t of) { return Origin{OpId{0}, kOwnFirstAxis, i, i + 1, of}; };
  EXPECT_EQ(rows_of_part(64, 4, piece(0, 5)), 16);
  EXPECT_EQ(rows_of_part(64, 4, piece(3, 5)), 12);
  for (const std::int64_t shards : {2, 4, 8}) {
    for (const std::int64_t pieces : {1, 2, 4, 8}) {
      std::int64_t sum = 0;
      for (std::int64_t i = 0; i <= pieces; ++i) {
        const std::int64_t rows = rows_of_part(64, shards, piece(i, pieces + 1));
        EXPECT_EQ(rows_of_whole(rows, shards, piece(i, pieces + 1)), 64);
        EXPECT_GE(static_cast<double>(rows), 64 * smallest_share(shards, 8));
        sum += rows;
      }
      EXPECT_EQ(sum, 64) << shards << " ranks, " << pieces << " parts";
    }
  }
}

// A ring of n ranks takes n - 1 steps.
TEST(OwnRows, TravelInThePartsOfARingExchangeRoundedToAPowerOfTwo) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{{1, 1}, {2, 1}, {3, 2}, {4, 4}, {8, 8}, {16, 8}};
  for (const auto& [shards, pieces] : expected) EXPECT_EQ(ring_exchange_pieces(shards), pieces) << shards;
}

// Forward gathers in front of both column-parallel products, backward in front of both row-parallel ones. What backward
// gathers again is for weight gradients, which need all rows at once.
TEST(OwnRows, AreReadByFourProductsOfALayer) {
  const StepGraph graph = build(with_layers("gpt2", 1), "dgx-a100:1", {.tp = 4, .seq = 64, .sequence_parallel = true});
  int products = 0, gathers = 0;
  for (const Operation& op : graph.operations) {
    gathers += gathers_rows_of_others(op) ? 1 : 0;
    if (!may_begin_with_own_rows(graph, op)) continue;
    ++products;
    const bool forward = op.phase == Phase::forward;
    EXPECT_TRUE(forward ? op.role == Role::qkv || op.role == Role::ffn_in
                        : op.role == Role::attention_out || op.role == Role::ffn_out)
        << describe(op);
    const ValueId gathered = read_of(op, forward ? Operand::input : Operand::output_grad);
    EXPECT_EQ(graph.value(gathered).shape.front(), 64);
    EXPECT_EQ(graph.value(own_shard_of(graph, gathered)).shape.front(), 16);
    EXPECT_EQ(reading_gathered_rows(graph, reading_own_shard(graph, op)), op);
    EXPECT_TRUE(may_be_cut_into(graph, op, 2, kOwnFirstAxis));
    EXPECT_TRUE(may_be_cut_into(graph, op, 9, kOwnFirstAxis));
    EXPECT_FALSE(may_be_cut_into(graph, op, 4, kOwnFirstAxis));  // 16 rows in three parts
  }
  EXPECT_EQ(products, 4);
  EXPECT_EQ(gathers, 4);
  const StepGraph without = build(with_layers("gpt2", 1), "dgx-a100:1", {.tp = 4, .seq = 64});
  for (const Operation& op : without.operations) EXPECT_FALSE(may_begin_with_own_rows(without, op)) << describe(op);
}

// The own piece reads a shard, and writes what no other piece writes; the others read what parts of the gather bring.
TEST(OwnRows, WaitForNoPartOfTheGather) {
  const StepGraph graph = build(with_layers("gpt2", 1), "dgx-a100:1", {.tp = 4, .seq = 64, .sequence_parallel = true});
  for (const Operation& op : graph.operations) {
    if (op.role != Role::qkv || op.phase != Phase::forward) continue;
    const auto part = [&](std::int64_t i) {
      Operation result = i == 0 ? reading_own_shard(graph, op) : op;
      result.origins = {{OpId{0}, kOwnFirstAxis, i, i + 1, 3}};
      return result;
    };
    const ValueId gathered = read_of(op, Operand::input), out = write_of(op, Operand::output);
    EXPECT_NE(read_of(part(0), Operand::input), gathered);
    EXPECT_EQ(read_slice_of(graph, part(0), read_of(part(0), Operand::input)), Slice{});
    EXPECT_EQ(read_slice_of(graph, part(1), gathered), (Slice{0, 1, 2, kTokenAxis}));
    EXPECT_EQ(read_slice_of(graph, part(2), gathered), (Slice{1, 2, 2, kTokenAxis}));
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) {
        EXPECT_EQ(overlap(slice_of(graph, part(i), out), slice_of(graph, part(j), out)), i == j);
      }
    }
  }
}

}  // namespace
}  // namespace weft
