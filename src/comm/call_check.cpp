#include "comm/call_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/text.hpp"

namespace weft {

std::string in_words(const CallNote& note) {
  const std::string label(note.label.data());
  return fmt::format("{}{} of {} x {}, {}, {}, root {} (call {})", name_of(static_cast<Collective>(note.kind)),
                     label.empty() ? "" : " '" + label + "'", format_count(note.elements),
                     name_of(static_cast<ElementType>(note.type)), name_of(static_cast<ReduceOp>(note.op)),
                     note.algorithm.data(), note.root, note.turn);
}

bool same_call(const CallNote& a, const CallNote& b) {
  const auto compared = [](const CallNote& n) {
    return std::tie(n.turn, n.elements, n.shape, n.identity, n.kind, n.op, n.type, n.root, n.algorithm);
  };
  return compared(a) == compared(b);
}

CallCheck::CallCheck(std::vector<std::int64_t> members, std::int64_t channel, Transport& transport)
    : channel_(channel), transport_(transport) {
  for (const std::int64_t member : members) {
    if (member == transport.rank()) continue;
    peers_.emplace_back().rank = member;
  }
  mine_segment_ = {reinterpret_cast<std::byte*>(&mine_), sizeof(CallNote)};
  for (Peer& peer : peers_) peer.note_segment = {reinterpret_cast<std::byte*>(&peer.note), sizeof(CallNote)};
}

void CallCheck::start(const CallNote& mine) {
  mine_ = mine;
  for (Peer& peer : peers_) {
    peer.receive = transport_.receive(peer.rank, channel_, {.dst = {&peer.note_segment, 1}, .operand = {}});
    peer.send = transport_.send(peer.rank, channel_, {&mine_segment_, 1});
    peer.sent = peer.received = false;
    in_flight_ += 2;
  }
}

bool CallCheck::advance() {
  const std::int64_t before = in_flight_;
  for (Peer& peer : peers_) {
    if (!peer.received && transport_.done(peer.receive)) {
      peer.received = true;
      --in_flight_;
    }
    if (!peer.sent && transport_.done(peer.send)) {
      peer.sent = true;
      --in_flight_;
    }
  }
  return in_flight_ != before;
}

std::optional<std::string> CallCheck::mismatch() const {
  const auto votes = [&](const CallNote& note) {
    return std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return same_call(peer.note, note); }) +
           (same_call(mine_, note) ? 1 : 0);
  };
  // Ties go to the lowest rank, so that all members say the same.
  std::int64_t best_rank = transport_.rank();
  const CallNote* best = &mine_;
  for (const Peer& peer : peers_) {
    const auto more = votes(peer.note) - votes(*best);
    if (more > 0 || (more == 0 && peer.rank < best_rank)) {
      best = &peer.note;
      best_rank = peer.rank;
    }
  }
  std::string words;
  const auto name_if_other = [&](std::int64_t rank, const CallNote& note) {
    if (same_call(note, *best) || !words.empty()) return;
    words = fmt::format("rank {} calls {}, but rank {} calls {}", rank, in_words(note), best_rank, in_words(*best));
  };
  std::vector<std::pair<std::int64_t, const CallNote*>> all = {{transport_.rank(), &mine_}};
  for (const Peer& peer : peers_) all.emplace_back(peer.rank, &peer.note);
  std::sort(all.begin(), all.end());
  for (const auto& [rank, note] : all) name_if_other(rank, *note);
  if (words.empty()) return std::nullopt;
  return words;
}

std::int64_t CallCheck::waits_for_rank() const {
  for (const Peer& peer : peers_) {
    if (!peer.received) return peer.rank;
  }
  for (const Peer& peer : peers_) {
    if (!peer.sent) return peer.rank;
  }
  return -1;
}

}  // namespace weft
