#include "collective/verify/testing/same_order.hpp"

#include <algorithm>

namespace weft::testing {
namespace {

constexpr std::size_t kMessageSlots = 2;

bool overlap(SlotRef a, std::int64_t a_count, SlotRef b, std::int64_t b_count) {
  return a.buffer == b.buffer && a.slot < b.slot + b_count && b.slot < a.slot + a_count;
}

bool conflict(const Program& program, std::int64_t rank, const Instruction& a, const Instruction& b) {
  const auto meets = [&](SlotRef x, SlotRef y) {
    return overlap(located(program, rank, x), a.count, located(program, rank, y), b.count);
  };
  if (writes_dst(a.kind) && writes_dst(b.kind) && meets(a.dst, b.dst)) return true;
  if (writes_dst(a.kind) && reads_src(b.kind) && meets(a.dst, b.src)) return true;
  return reads_src(a.kind) && writes_dst(b.kind) && meets(a.src, b.dst);
}

}  // namespace

SameOrder::SameOrder(const Program& original) {
  const Mutant same = unchanged(original);
  for (const auto& rank : same.origin) {
    for (const auto& block : rank) count_ += block.size();
  }
  original_ = picture_of(same);
  original_queues_ = queues_of(original_);
  const std::vector<Set> before = all_before(original_);
  for (Node a = 0; a < count_; ++a) {
    for (Node b = 0; b < count_; ++b) {
      if (original_.rank[a] != original_.rank[b] || !contains(before[b], a)) continue;
      if (conflict(original, original_.rank[a], original_.instructions[a], original_.instructions[b])) {
        ordered_conflicts_.emplace_back(a, b);
      }
    }
  }
}

void SameOrder::add_rank(std::size_t rank, const Mutant& mutant, Picture& picture) const {
  const auto& blocks = mutant.program.ranks[rank].blocks;
  const auto r = static_cast<std::int64_t>(rank);
  std::vector<std::vector<Node>> nodes(blocks.size());
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].steps.size(); ++s) {
      const std::int32_t origin = mutant.origin[rank][b][s];
      if (origin < 0 && blocks[b].steps[s].kind != InstructionKind::nop) picture.comparable = false;
      if (origin < 0) picture.waits_for.emplace_back();
      nodes[b].push_back(origin < 0 ? picture.waits_for.size() - 1 : static_cast<Node>(origin));
    }
  }
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (std::size_t s = 0; s < blocks[b].steps.size(); ++s) {
      const Instruction& step = blocks[b].steps[s];
      const Node node = nodes[b][s];
      if (s > 0) picture.waits_for[node].push_back(nodes[b][s - 1]);
      for (const InstructionId& other : step.after) {
        const std::size_t block = other.block;
        if (block == b || block >= nodes.size() || static_cast<std::size_t>(other.step) >= nodes[block].size()) {
          picture.comparable = false;
        } else {
          picture.waits_for[node].push_back(nodes[block][other.step]);
        }
      }
      if (sends(step.kind)) picture.connections[{r, blocks[b].send_to, blocks[b].channel, false}].push_back(node);
      if (receives(step.kind)) {
        picture.connections[{blocks[b].receive_from, r, blocks[b].channel, true}].push_back(node);
      }
      if (node >= count_) continue;
      picture.rank[node] = r;
      picture.instructions[node] = step;
      picture.instructions[node].after.clear();
    }
  }
}

SameOrder::Picture SameOrder::picture_of(const Mutant& mutant) const {
  Picture picture;
  picture.instructions.resize(count_);
  picture.rank.assign(count_, -1);
  picture.waits_for.resize(count_);
  for (std::size_t rank = 0; rank < mutant.program.ranks.size(); ++rank) add_rank(rank, mutant, picture);
  return picture;
}

std::vector<SameOrder::Queue> SameOrder::queues_of(const Picture& picture) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Queue> queues;
  for (const auto& [key, nodes] : picture.connections) {
    const auto& [from, to, channel, receiving] = key;
    Queue& queue = queues[{from, to, channel}];
    queue.from = from;
    queue.to = to;
    (receiving ? queue.received : queue.sent) = nodes;
  }
  std::vector<Queue> result;
  for (auto& [key, queue] : queues) result.push_back(std::move(queue));
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<SameOrder::Set> SameOrder::all_before(const Picture& picture) const {
  std::vector<std::vector<Node>> messages = picture.waits_for;
  std::vector<std::vector<Node>> room(messages.size());
  for (const auto& [key, sent] : picture.connections) {
    const auto& [from, to, channel, receiving] = key;
    if (receiving) continue;
    const std::vector<Node>& received = picture.connections.at({from, to, channel, true});
    for (std::size_t k = 0; k < sent.size(); ++k) {
      messages[received[k]].push_back(sent[k]);
      if (k >= kMessageSlots) room[sent[k]].push_back(received[k - kMessageSlots]);
    }
  }
  // Repeats until nothing changes: whoever waits for ended nodes only ends.
  std::vector<Set> before(messages.size(), Set((count_ + 63) / 64, 0));
  std::vector<char> ended(messages.size(), 0);
  std::size_t left = messages.size();
  const auto all_ended = [&](const std::vector<Node>& nodes) {
    return std::all_of(nodes.begin(), nodes.end(), [&](Node node) { return ended[node] != 0; });
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (Node node = 0; node < messages.size(); ++node) {
      if (ended[node] || !all_ended(messages[node]) || !all_ended(room[node])) continue;
      ended[node] = 1;
      moved = true;
      --left;
      for (const Node other : messages[node]) {
        for (std::size_t word = 0; word < before[node].size(); ++word) before[node][word] |= before[other][word];
        if (other < count_) before[node][other / 64] |= std::uint64_t{1} << (other % 64);
      }
    }
  }
  if (left > 0) before.clear();
  return before;
}

bool SameOrder::provably_same(const Mutant& mutant) const {
  const Picture picture = picture_of(mutant);
  // Equal queues also mean that every send has its receive, since the original is proven.
  if (!picture.comparable || picture.rank != original_.rank || queues_of(picture) != original_queues_ ||
      picture.instructions != original_.instructions) {
    return false;
  }
  const std::vector<Set> before = all_before(picture);
  if (before.empty()) return false;
  return std::all_of(ordered_conflicts_.begin(), ordered_conflicts_.end(),
                     [&](const auto& pair) { return contains(before[pair.second], pair.first); });
}

}  // namespace weft::testing
