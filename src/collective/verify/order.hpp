// Which instruction waits for which, over all ranks of a program: the graph in which deadlocks and hazards are found.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/verify/finding.hpp"

namespace weft {

// The number of unreceived messages for which every connection has room.
inline constexpr std::int64_t kMinMessageSlots = 2;

// Instructions are numbered rank by rank, block by block, step by step; -1 is none. An instruction that receives and
// sends is one node.
class ProgramOrder {
 public:
  using Node = std::int32_t;

  // The program's structure must have been checked.
  explicit ProgramOrder(const Program& program);

  // Finds unequal numbers of sends and receives, and messages whose length differs at the two ends.
  std::optional<Finding> find_mismatch() const;
  // Fills `sequence` where nothing is found.
  std::optional<Finding> find_deadlock();

  Node size() const { return static_cast<Node>(steps_.size()); }
  const RankStep& step(Node node) const { return steps_[node]; }
  const Instruction& instruction(Node node) const;
  // The instructions of a rank are consecutive.
  Node begin_of_rank(std::int64_t rank) const { return begin_of_rank_[rank]; }

  // Returns what must have ended before the node begins, for every timing and number of message slots.
  Node before_in_block(Node node) const { return step(node).step.step > 0 ? node - 1 : -1; }
  Node message_from(Node node) const { return message_from_[node]; }
  std::span<const Node> dependencies(Node node) const {
    const std::size_t i = node;
    return std::span(dependencies_).subspan(first_dependency_[i], first_dependency_[i + 1] - first_dependency_[i]);
  }

  // All instructions in an order in which they can be executed.
  const std::vector<Node>& sequence() const { return sequence_; }

 private:
  struct Connection {
    std::int64_t from = 0, to = 0, channel = 0;
    std::vector<Node> sends, receives;
  };

  void number_steps();
  void connect();
  Node node_of(std::int64_t rank, InstructionId step) const;
  template <class Visit>
  void visit_all_before(Node node, const Visit& visit) const;
  Finding describe_cycle(const std::vector<std::int32_t>& waiting_for) const;
  std::string reason(Node waiting, Node other) const;

  const Program& program_;
  std::vector<RankStep> steps_;
  std::vector<Node> begin_of_rank_;                // and one past the last
  std::vector<std::vector<Node>> begin_of_block_;  // by rank
  std::vector<std::size_t> first_dependency_;
  std::vector<Node> dependencies_;
  std::vector<Connection> connections_;  // by (from, to, channel)
  std::vector<Node> message_from_;       // the send that a receive meets
  std::vector<Node> slot_from_;          // the receive that makes room for a send
  std::vector<Node> sequence_;
};

}  // namespace weft
