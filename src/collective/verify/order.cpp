#include "collective/verify/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.hpp"

namespace weft {

ProgramOrder::ProgramOrder(const Program& program) : program_(program) {
  number_steps();
  connect();
}

const Instruction& ProgramOrder::instruction(Node node) const {
  const RankStep& at = step(node);
  return program_.ranks[at.rank].blocks[at.step.block].steps[at.step.step];
}

ProgramOrder::Node ProgramOrder::node_of(std::int64_t rank, InstructionId step) const {
  return begin_of_block_[rank][step.block] + step.step;
}

void ProgramOrder::number_steps() {
  for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
    begin_of_rank_.push_back(size());
    auto& begin_of_block = begin_of_block_.emplace_back();
    const std::vector<ThreadBlock>& blocks = program_.ranks[rank].blocks;
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      begin_of_block.push_back(size());
      for (std::size_t i = 0; i < blocks[block].steps.size(); ++i) {
        steps_.push_back(
            {static_cast<std::int64_t>(rank), {static_cast<std::int32_t>(block), static_cast<std::int32_t>(i)}});
      }
    }
  }
  begin_of_rank_.push_back(size());
  for (Node node = 0; node < size(); ++node) {
    first_dependency_.push_back(dependencies_.size());
    for (const InstructionId& other : instruction(node).after) dependencies_.push_back(node_of(step(node).rank, other));
  }
  first_dependency_.push_back(dependencies_.size());
}

void ProgramOrder::connect() {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, Connection> connections;
  const auto connection = [&](std::int64_t from, std::int64_t to, std::int64_t channel) -> Connection& {
    Connection& found = connections[{from, to, channel}];
    found.from = from;
    found.to = to;
    found.channel = channel;
    return found;
  };
  for (Node node = 0; node < size();) {
    const RankStep& at = step(node);
    const ThreadBlock& block = program_.ranks[at.rank].blocks[at.step.block];
    Connection* out = block.send_to < 0 ? nullptr : &connection(at.rank, block.send_to, block.channel);
    Connection* in = block.receive_from < 0 ? nullptr : &connection(block.receive_from, at.rank, block.channel);
    for (const Instruction& each : block.steps) {
      if (sends(each.kind)) out->sends.push_back(node);
      if (receives(each.kind)) in->receives.push_back(node);
      ++node;
    }
  }
  message_from_.assign(steps_.size(), -1);
  slot_from_.assign(steps_.size(), -1);
  for (auto& [key, each] : connections) {
    const std::size_t met = std::min(each.sends.size(), each.receives.size());
    for (std::size_t k = 0; k < met; ++k) message_from_[each.receives[k]] = each.sends[k];
    const std::size_t room = kMinMessageSlots;
    for (std::size_t k = room; k < met; ++k) slot_from_[each.sends[k]] = each.receives[k - room];
    connections_.push_back(std::move(each));
  }
}

std::optional<Finding> ProgramOrder::find_mismatch() const {
  const auto name = [&](Node node) { return where(program_, step(node).rank, step(node).step); };
  for (const Connection& each : connections_) {
    const std::string connection = fmt::format("connection {} -> {}, channel {}", each.from, each.to, each.channel);
    const std::size_t met = std::min(each.sends.size(), each.receives.size());
    for (std::size_t k = 0; k < met; ++k) {
      const std::int64_t sent = instruction(each.sends[k]).count;
      const std::int64_t expected = instruction(each.receives[k]).count;
      if (sent == expected) continue;
      return Finding{ProgramRule::matching,
                     fmt::format("{}: message {} has {} slots from {}, but {} expects {}", connection, k, sent,
                                 name(each.sends[k]), name(each.receives[k]), expected),
                     {step(each.sends[k]), step(each.receives[k])},
                     {}};
    }
    if (each.sends.size() == each.receives.size()) continue;
    const bool more_sent = each.sends.size() > met;
    const Node alone = more_sent ? each.sends[met] : each.receives[met];
    return Finding{ProgramRule::matching,
                   fmt::format("{}: {} sends, {} receives; {} {}", connection, each.sends.size(), each.receives.size(),
                               name(alone), more_sent ? "is never received" : "waits for a message that nobody sends"),
                   {step(alone)},
                   {}};
  }
  return std::nullopt;
}

template <class Visit>
void ProgramOrder::visit_all_before(Node node, const Visit& visit) const {
  if (message_from(node) >= 0) visit(message_from(node));
  for (const Node other : dependencies(node)) visit(other);
  if (const Node other = slot_from_[node]; other >= 0) visit(other);
  if (const Node other = before_in_block(node); other >= 0) visit(other);
}

std::optional<Finding> ProgramOrder::find_deadlock() {
  const std::size_t count = steps_.size();
  std::vector<std::int32_t> waiting_for(count, 0);  // how many
  std::vector<std::size_t> first_after(count + 1, 0);
  for (Node node = 0; node < size(); ++node) {
    visit_all_before(node, [&](Node other) {
      ++waiting_for[node];
      ++first_after[static_cast<std::size_t>(other) + 1];
    });
  }
  for (std::size_t i = 0; i < count; ++i) first_after[i + 1] += first_after[i];
  std::vector<Node> after(first_after.back());
  std::vector<std::size_t> fill(first_after.begin(), first_after.end() - 1);
  for (Node node = 0; node < size(); ++node) visit_all_before(node, [&](Node other) { after[fill[other]++] = node; });
  sequence_.clear();
  sequence_.reserve(count);
  for (Node node = 0; node < size(); ++node) {
    if (waiting_for[node] == 0) sequence_.push_back(node);
  }
  for (std::size_t next = 0; next < sequence_.size(); ++next) {
    const std::size_t node = sequence_[next];
    for (std::size_t i = first_after[node]; i < first_after[node + 1]; ++i) {
      if (--waiting_for[after[i]] == 0) sequence_.push_back(after[i]);
    }
  }
  if (sequence_.size() == count) return std::nullopt;
  sequence_.clear();
  return describe_cycle(waiting_for);
}

// Every remaining instruction waits for another remaining one, so following the waits leads into a cycle.
Finding ProgramOrder::describe_cycle(const std::vector<std::int32_t>& waiting_for) const {
  const auto next = [&](Node node) {
    Node found = -1;
    visit_all_before(node, [&](Node other) {
      if (found < 0 && waiting_for[other] > 0) found = other;
    });
    WEFT_CHECK(found >= 0);
    return found;
  };
  Node node = 0;
  while (waiting_for[node] == 0) ++node;
  std::vector<char> seen(steps_.size(), 0);
  while (!seen[node]) {
    seen[node] = 1;
    node = next(node);
  }
  std::vector<Node> cycle{node};
  for (Node other = next(node); other != node; other = next(other)) cycle.push_back(other);

  constexpr std::size_t kMaxNamed = 8;
  const auto name = [&](Node each) { return where(program_, step(each).rank, step(each).step); };
  Finding finding{ProgramRule::deadlock, {}, {step(node)}, {}};
  finding.words = fmt::format("deadlock with {} message slots a connection: {}", kMinMessageSlots, name(node));
  for (std::size_t i = 0; i + 1 < cycle.size() && i + 1 < kMaxNamed; ++i) {
    finding.steps.push_back(step(cycle[i + 1]));
    finding.words += fmt::format(" waits {} {}, which", reason(cycle[i], cycle[i + 1]), name(cycle[i + 1]));
  }
  if (cycle.size() > kMaxNamed) finding.words += fmt::format(" waits for {} more, of which", cycle.size() - kMaxNamed);
  finding.words += cycle.size() > kMaxNamed ? " the last waits" : " waits";
  finding.words += fmt::format(" {} the first of these", reason(cycle.back(), cycle.front()));
  return finding;
}

std::string ProgramOrder::reason(Node waiting, Node other) const {
  if (other == message_from(waiting)) return "for the message of";
  const std::span<const Node> named = dependencies(waiting);
  if (std::find(named.begin(), named.end(), other) != named.end()) return "for its dependency";
  if (other == slot_from_[waiting]) return "for room in its connection, after";
  return "for the step before it,";
}

}  // namespace weft
