// Decides by plain search whether a changed program provably gives the same result as the original: it has the same
// instructions and messages, conflicting instructions come in the same order, and it cannot get stuck.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "collective/verify/testing/mutations.hpp"

namespace weft::testing {

class SameOrder {
 public:
  // The original must be a proven program.
  explicit SameOrder(const Program& original);
  bool provably_same(const Mutant& mutant) const;

 private:
  using Node = std::size_t;  // the instruction's number in the original; new ones come behind
  using Set = std::vector<std::uint64_t>;
  using ConnectionEnd = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;  // from, to, channel, receives

  struct Picture {
    bool comparable = true;                 // no instruction but nops is missing or new, no dependency is nonsense
    std::vector<Instruction> instructions;  // without dependencies
    std::vector<std::int64_t> rank;
    std::map<ConnectionEnd, std::vector<Node>> connections;
    std::vector<std::vector<Node>> waits_for;
  };
  // What goes from whom to whom in one queue; the number of the channel does not matter.
  struct Queue {
    std::int64_t from = 0, to = 0;
    std::vector<Node> sent, received;
    friend auto operator<=>(const Queue&, const Queue&) = default;
  };
  static std::vector<Queue> queues_of(const Picture& picture);
  Picture picture_of(const Mutant& mutant) const;
  void add_rank(std::size_t rank, const Mutant& mutant, Picture& picture) const;
  // By node: all that has ended before it begins. Empty where the program does not end with two message slots.
  std::vector<Set> all_before(const Picture& picture) const;
  static bool contains(const Set& set, Node node) { return ((set[node / 64] >> (node % 64)) & 1) != 0; }

  std::size_t count_ = 0;
  Picture original_;
  std::vector<Queue> original_queues_;
  std::vector<std::pair<Node, Node>> ordered_conflicts_;  // first before second
};

}  // namespace weft::testing
