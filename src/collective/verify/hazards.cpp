#include "collective/verify/hazards.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

using Node = ProgramOrder::Node;

// Two instructions of a rank that touch a slot, one of them writing; `earlier` is first in the sequence.
struct Conflict {
  Node earlier = -1, later = -1;
  SlotRef slot;
  bool earlier_writes = false, later_writes = false;
};

// By block of one rank: the last instruction that is known to have ended; -1 for none.
using Clock = std::vector<std::int32_t>;

void raise(Clock& clock, const Clock& other) {
  for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

void raise(Clock& clock, InstructionId ended) {
  std::int32_t& last = clock[ended.block];
  last = std::max(last, ended.step);
}

bool covers(const Clock& clock, InstructionId step) {
  return clock[step.block] >= step.step;
}

class RankHazards {
 public:
  RankHazards(const Program& program, const ProgramOrder& order, std::int64_t rank, const std::vector<Node>& nodes)
      : program_(program), order_(order), rank_(rank), nodes_(nodes) {
    blocks_ = program.ranks[rank].blocks.size();
  }

  std::optional<Finding> find() {
    find_conflicts();
    keep_unordered_within_rank();
    if (!conflicts_.empty()) keep_unordered_over_ranks();
    if (conflicts_.empty()) return std::nullopt;
    return in_words(conflicts_.front());
  }

 private:
  // If every write follows the last write and the reads since, and every read follows the last write, then all pairs
  // are ordered by transitivity.
  void find_conflicts() {
    struct SlotUse {
      Node writer = -1;
      std::vector<Node> readers;  // since
    };
    std::vector<std::vector<SlotUse>> uses;
    for (const BufferKind kind : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
      uses.emplace_back(static_cast<std::size_t>(slot_count(program_, rank_, kind)));
    }
    for (const Node node : nodes_) {
      const Instruction& step = order_.instruction(node);
      for (std::int64_t i = 0; i < step.count && step.kind != InstructionKind::nop; ++i) {
        const auto use_of = [&](SlotRef slot) -> SlotUse& {
          return uses[static_cast<std::size_t>(slot.buffer)][slot.slot];
        };
        const SlotRef src = located(program_, rank_, {step.src.buffer, step.src.slot + i});
        const SlotRef dst = located(program_, rank_, {step.dst.buffer, step.dst.slot + i});
        if (reads_src(step.kind)) {
          SlotUse& use = use_of(src);
          note({use.writer, node, src, true, false});
          use.readers.push_back(node);
        }
        if (!writes_dst(step.kind)) continue;
        SlotUse& use = use_of(dst);
        note({use.writer, node, dst, true, true});
        for (const Node reader : use.readers) note({reader, node, dst, false, true});
        use.readers.clear();
        use.writer = node;
      }
    }
  }

  void note(const Conflict& conflict) {
    if (conflict.earlier < 0 || conflict.earlier == conflict.later) return;
    if (step_of(conflict.earlier).block == step_of(conflict.later).block) return;
    conflicts_.push_back(conflict);
  }

  // First looks at dependencies inside the rank, by which most programs order their conflicts.
  void keep_unordered_within_rank() {
    const Node begin = order_.begin_of_rank(rank_);
    std::vector<Clock> clocks(nodes_.size());  // by node, counted from the rank's first
    for (const Node node : nodes_) {
      Clock& clock = clocks[node - begin];
      clock.assign(blocks_, -1);
      const auto follow = [&](Node other) {
        raise(clock, clocks[other - begin]);
        raise(clock, step_of(other));
      };
      if (const Node other = order_.before_in_block(node); other >= 0) follow(other);
      for (const Node other : order_.dependencies(node)) follow(other);
    }
    std::erase_if(conflicts_,
                  [&](const Conflict& each) { return covers(clocks[each.later - begin], step_of(each.earlier)); });
  }

  // The same with the messages of all ranks. A clock is dropped once all its successors have merged it.
  void keep_unordered_over_ranks() {
    const std::size_t count = order_.size();
    std::vector<std::int32_t> followers(count, 0);
    std::vector<char> asked(count, 0);
    for (Node node = 0; node < order_.size(); ++node) visit_before(node, [&](Node other) { ++followers[other]; });
    for (const Conflict& each : conflicts_) asked[each.later] = 1;
    std::vector<Clock> clocks(count);  // empty: nothing of this rank is before
    for (const Node node : order_.sequence()) {
      Clock& clock = clocks[node];
      visit_before(node, [&](Node other) {
        Clock& known = clocks[other];
        const bool here = order_.step(other).rank == rank_;
        if (clock.empty() && (here || !known.empty())) clock.assign(blocks_, -1);
        if (!known.empty()) raise(clock, known);
        if (here) raise(clock, step_of(other));
        const std::size_t o = other;
        if (--followers[o] == 0 && !asked[o]) Clock().swap(known);
      });
    }
    std::erase_if(conflicts_, [&](const Conflict& each) {
      const Clock& clock = clocks[each.later];
      return !clock.empty() && covers(clock, step_of(each.earlier));
    });
  }

  template <class Visit>
  void visit_before(Node node, const Visit& visit) const {
    if (const Node other = order_.before_in_block(node); other >= 0) visit(other);
    if (const Node other = order_.message_from(node); other >= 0) visit(other);
    for (const Node other : order_.dependencies(node)) visit(other);
  }

  InstructionId step_of(Node node) const { return order_.step(node).step; }

  Finding in_words(const Conflict& found) const {
    const RankStep& earlier = order_.step(found.earlier);
    const RankStep& later = order_.step(found.later);
    return {ProgramRule::hazard,
            fmt::format("{} {} {} slot {} and {} {} it: nothing orders the two", where(program_, rank_, earlier.step),
                        found.earlier_writes ? "writes" : "reads", name_of(found.slot.buffer), found.slot.slot,
                        where(program_, rank_, later.step), found.later_writes ? "writes" : "reads"),
            {earlier, later},
            found.slot};
  }

  const Program& program_;
  const ProgramOrder& order_;
  std::int64_t rank_;
  const std::vector<Node>& nodes_;  // of the rank, in the order of the sequence
  std::size_t blocks_ = 0;
  std::vector<Conflict> conflicts_;
};

}  // namespace

std::optional<Finding> find_hazard(const Program& program, const ProgramOrder& order) {
  std::vector<std::vector<Node>> nodes(program.ranks.size());
  for (const Node node : order.sequence()) nodes[order.step(node).rank].push_back(node);
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    if (auto found = RankHazards(program, order, static_cast<std::int64_t>(rank), nodes[rank]).find()) return found;
  }
  return std::nullopt;
}

}  // namespace weft
