// Which sequences a step sees: all of them once an epoch, the same whatever the layout.
#include "exec/data/batches.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/test_folder.hpp"

namespace weft {
namespace {

using test::error_of;
using test::ScratchFolder;

// Every byte says its sequence of 4 bytes in its first byte: 0 0 0 0 1 1 1 1 2 ...
std::shared_ptr<const Corpus> numbered(const ScratchFolder& folder, std::int64_t sequences, std::int64_t seq) {
  std::string text;
  for (std::int64_t i = 0; i < sequences * seq; ++i) text += static_cast<char>(i / seq);
  text += static_cast<char>(sequences);
  return Corpus::open(folder.write("numbered", text));
}

// The first token of every sequence from step `first` on.
std::vector<std::int64_t> order(const Batches& batches, const BatchShape& shape, std::int64_t first,
                                std::int64_t steps) {
  std::vector<std::int64_t> seen;
  const std::size_t size = shape.micro_batch * shape.seq;
  std::vector<std::int64_t> tokens(size), targets(size);
  for (std::int64_t step = first; step < first + steps; ++step) {
    for (std::int64_t rank = 0; rank < shape.data_ranks; ++rank) {
      for (std::int64_t m = 0; m < shape.global_batch / shape.data_ranks / shape.micro_batch; ++m) {
        batches.fill(step, rank, m, tokens, targets);
        for (std::size_t i = 0; i < size; i += static_cast<std::size_t>(shape.seq)) seen.push_back(tokens[i]);
      }
    }
  }
  return seen;
}

TEST(Batches, VisitEverySequenceOnceAnEpoch) {
  for (const std::int64_t sequences : {1, 2, 3, 4, 5, 16, 17, 30, 63, 64, 65, 100}) {
    const ScratchFolder folder("epoch");
    const BatchShape shape{.seq = 4};
    const Batches batches(numbered(folder, sequences, 4), shape, 7);
    ASSERT_EQ(batches.sequences_per_epoch(), sequences);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const std::vector<std::int64_t> seen = order(batches, shape, epoch * sequences, sequences);
      const std::set<std::int64_t> distinct(seen.begin(), seen.end());
      EXPECT_EQ(std::ssize(distinct), sequences) << epoch;
      EXPECT_EQ(*distinct.begin(), 0);
      EXPECT_EQ(*distinct.rbegin(), sequences - 1);
    }
  }
}

TEST(Batches, AreTheSameWhateverTheLayout) {
  const ScratchFolder folder("layouts");
  const auto corpus = numbered(folder, 50, 4);
  const BatchShape alone{.global_batch = 8, .micro_batch = 8, .seq = 4};
  const std::vector<std::int64_t> expected = order(Batches(corpus, alone, 7), alone, 0, 15);
  for (const std::int64_t ranks : {1, 2, 4, 8}) {
    for (const std::int64_t micro : {1, 2, 4, 8}) {
      if (ranks * micro > 8) continue;
      const BatchShape shape{.global_batch = 8, .micro_batch = micro, .seq = 4, .data_ranks = ranks};
      EXPECT_EQ(order(Batches(corpus, shape, 7), shape, 0, 15), expected) << ranks << " " << micro;
    }
  }
}

TEST(Batches, AreOrderedBySeedAndEpochAlone) {
  const ScratchFolder folder("seeds");
  const auto corpus = numbered(folder, 100, 4);
  const BatchShape shape{.global_batch = 10, .seq = 4};
  const auto epoch = [&](std::uint64_t seed, std::int64_t number) {
    return order(Batches(corpus, shape, seed), shape, 10 * number, 10);
  };
  EXPECT_EQ(epoch(7, 0), epoch(7, 0));
  EXPECT_NE(epoch(7, 0), epoch(8, 0));
  EXPECT_NE(epoch(7, 0), epoch(7, 1));
  const BatchShape larger{.global_batch = 20, .micro_batch = 2, .seq = 4};
  EXPECT_EQ(order(Batches(corpus, larger, 7), larger, 0, 5), epoch(7, 0));
}

TEST(Batches, AreShuffledEvenly) {
  // Where sequence 0 of 10 lands over 4,000 seeds: 400 each, 5 deviations of sqrt(4000 * 0.1 * 0.9) = 19 are 95.
  const ScratchFolder folder("even");
  const auto corpus = numbered(folder, 10, 4);
  const BatchShape shape{.global_batch = 10, .micro_batch = 10, .seq = 4};
  std::vector<int> places(10);
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    const auto seen = order(Batches(corpus, shape, seed), shape, 0, 1);
    ++places[std::ranges::find(seen, 0) - seen.begin()];
  }
  for (const int count : places) EXPECT_NEAR(count, 400, 95);
}

TEST(Batches, TargetsAreTheNextBytes) {
  const ScratchFolder folder("targets");
  const auto corpus = Corpus::open(folder.write("text", "abcdefghij"));  // abc>d def>g ghi>j
  const BatchShape shape{.global_batch = 3, .micro_batch = 3, .seq = 3};
  const Batches batches(corpus, shape, 1);
  std::vector<std::int64_t> tokens(9), targets(9);
  batches.fill(0, 0, 0, tokens, targets);
  std::set<std::int64_t> all(targets.begin(), targets.end());
  EXPECT_EQ(all.size(), 9U);  // every byte but the first
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(targets[i], tokens[i] + 1);
  EXPECT_FALSE(all.contains('a'));
}

TEST(Batches, SequencesOfStepsAreThoseThatRanksSee) {
  const ScratchFolder folder("sequences");
  const auto corpus = numbered(folder, 40, 4);
  const BatchShape shape{.global_batch = 8, .micro_batch = 2, .seq = 4, .data_ranks = 2};
  const Batches batches(corpus, shape, 7);
  const std::vector<std::int64_t> all = sequences_of_steps(batches, shape, 3);
  const std::vector<std::int64_t> firsts = order(batches, shape, 0, 3);
  ASSERT_EQ(all.size(), 3U * 8 * 5);
  for (std::size_t i = 0; i < firsts.size(); ++i) {
    for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(all[5 * i + k], firsts[i]);
    EXPECT_EQ(all[5 * i + 4], firsts[i] + 1);  // the next sequence's first byte
  }
}

TEST(Batches, RefuseACorpusWithoutOneSequence) {
  const ScratchFolder folder("short");
  const auto corpus = Corpus::open(folder.write("short", "12345678"));
  EXPECT_EQ(error_of([&] { Batches(corpus, {.seq = 8}, 1); }),
            corpus->name() + ": 8 bytes are too few for one sequence; --seq 8 needs 9");
  EXPECT_EQ(Batches(corpus, {.seq = 7}, 1).sequences_per_epoch(), 1);
}

TEST(Batches, RefuseABytesThatIsNoToken) {
  const ScratchFolder folder("vocab");
  const auto corpus = Corpus::open(folder.write("text", "aaaaz"));  // z is 122
  EXPECT_EQ(error_of([&] { Batches(corpus, {.seq = 2, .vocab = 122}, 1); }),
            corpus->name() + ": byte 122 at offset 4 has no token in a vocabulary of 122; give --vocab 256 or more");
  EXPECT_EQ(error_of([&] { Batches(corpus, {.seq = 2, .vocab = 123}, 1); }), "");
}

}  // namespace
}  // namespace weft
