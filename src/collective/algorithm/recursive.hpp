// What recursive doubling and halving share: a power of two of ranks works, the others are folded into neighbours.
#pragma once

#include <bit>
#include <cstdint>

#include "collective/algorithm/phases.hpp"

namespace weft {

// With N = p + e and p the largest power of two, ranks 2i and 2i+1 for i < e form one worker: 2i+1 first gives its data
// to 2i and at the end gets its result from it. That costs two more messages and, at the folded ranks, up to K bytes
// each way. A worker covers consecutive ranks, so what consecutive workers have is consecutive.
class FoldedRanks {
 public:
  explicit FoldedRanks(std::int64_t ranks)
      : workers_(static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ranks)))),
        extra_(ranks - workers_) {}

  std::int64_t workers() const { return workers_; }
  std::int64_t extra() const { return extra_; }
  std::int64_t rank_of(std::int64_t worker) const { return first_rank(worker); }
  std::int64_t folded_into(std::int64_t i) const { return 2 * i; }
  std::int64_t folded(std::int64_t i) const { return 2 * i + 1; }
  // The first rank that worker w covers; for w = workers(), the number of ranks.
  std::int64_t first_rank(std::int64_t worker) const { return worker < extra_ ? 2 * worker : worker + extra_; }

 private:
  std::int64_t workers_, extra_;
};

// The pieces of workers first .. last-1, where piece i of `width` per rank lies at rank * width + i.
inline Pieces pieces_of_ranks(const FoldedRanks& folding, std::int64_t first, std::int64_t last, std::int64_t width) {
  const std::int64_t begin = folding.first_rank(first);
  return consecutive(begin * width, (folding.first_rank(last) - begin) * width);
}

}  // namespace weft
