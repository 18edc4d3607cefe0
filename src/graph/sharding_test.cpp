// What values say of their sharding against the same model on one rank, and where shares lie against brute force.
#include "graph/sharding.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/test_graphs.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// Elements of every activation by name, as all ranks of its axes hold them together.
std::map<std::string, std::int64_t> whole_sizes(const StepGraph& graph, const Layout& layout) {
  std::map<std::string, std::int64_t> sizes;
  for (const Value& value : graph.values) {
    if (value.kind != ValueKind::activation && value.kind != ValueKind::activation_grad) continue;
    std::int64_t elements = value.elements();
    for (const Split& split : value.sharding.splits) elements *= layout.extent(split.axis);
    sizes[value.name] = elements;
  }
  return sizes;
}

// A value is as large as its share of the whole, which is what one rank alone has under the same name. (Vocabularies
// and heads here divide, so nothing is padded or copied; what exists only because something is split has no
// counterpart on one rank.)
TEST(Sharding, TimesItsRanksIsTheWholeValue) {
  int compared = 0;
  for (const char* name : {"gpt2", "llama2-7b", "deepseek-v3"}) {
    Transformer model = with_layers(name, 4);
    model.vocab = 1024;
    model.experts = {};
    const Layout alone{.seq = 512};
    const auto expected = whole_sizes(build(model, "local:1", alone), alone);
    for (const Layout& layout :
         {Layout{.tp = 2, .seq = 512}, Layout{.tp = 4, .seq = 512, .sequence_parallel = true},
          Layout{.cp = 2, .seq = 512}, Layout{.tp = 2, .cp = 4, .seq = 512, .sequence_parallel = true}}) {
      const std::string cluster = "local:" + std::to_string(layout.devices());
      for (const auto& [value, size] : whole_sizes(build(model, cluster, layout), layout)) {
        const auto found = expected.find(value);
        if (found == expected.end()) continue;
        EXPECT_EQ(size, found->second) << name << ": " << value << " with tp " << layout.tp << ", cp " << layout.cp;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 500);
}

// By hand: 16 positions over 2 ranks. Mirrored, rank 0 has the first and the last of four blocks.
TEST(Sharding, PositionsOfASequence) {
  using Ranges = std::vector<ElementRange>;
  EXPECT_EQ(positions_of(Share::sequences, 16, {1, 2}), (Ranges{{8, 16}}));
  EXPECT_EQ(positions_of(Share::mirrored, 16, {0, 2}), (Ranges{{0, 4}, {12, 16}}));
  EXPECT_EQ(positions_of(Share::mirrored, 16, {1, 2}), (Ranges{{4, 8}, {8, 12}}));
  EXPECT_EQ(positions_of(Share::mirrored, 6, {1, 2}), (Ranges{{3, 6}}));  // 4 does not divide 6
  EXPECT_EQ(positions_of(Share::mirrored, 6, {0, 1}), (Ranges{{0, 6}}));
}

// The shares of all ranks are every row of the whole once, and a share in pieces is the share.
TEST(Sharding, SharesOfAllRanksAreTheWholeOnce) {
  for (const Share share : {Share::blocks, Share::sequences, Share::mirrored}) {
    for (const std::int64_t ranks : {1, 2, 4}) {
      const WholeRows whole{.rows = 48, .sequences = 3};
      std::multiset<std::int64_t> seen;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t own = whole.rows / ranks;
        std::vector<std::int64_t> rows, in_pieces;
        const auto list = [&](ElementRange of_share, std::vector<std::int64_t>& to) {
          for (const ElementRange& range : rows_of_share(share, whole, {r, ranks}, of_share)) {
            for (std::int64_t row = range.begin; row < range.end; ++row) to.push_back(row);
          }
        };
        list({0, own}, rows);
        for (std::int64_t at = 0; at < own; at += 5) list({at, std::min(own, at + 5)}, in_pieces);
        EXPECT_EQ(rows, in_pieces) << name_of(share) << " " << r << " of " << ranks;
        seen.insert(rows.begin(), rows.end());
      }
      std::multiset<std::int64_t> expected;
      for (std::int64_t row = 0; row < whole.rows; ++row) expected.insert(row);
      EXPECT_EQ(seen, expected) << name_of(share) << " over " << ranks;
    }
  }
}

}  // namespace
}  // namespace weft
