#include "comm/uneven_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"

namespace weft {

UnevenRun::UnevenRun(const UnevenBlocks& shape, std::vector<std::int64_t> members, std::int64_t first_channel,
                     Transport& transport)
    : shape_(shape), channel_(first_channel), transport_(transport) {
  WEFT_CHECK(shape.blocks >= 1 && shape.units >= 0 && shape.unit_bytes >= 0);
  WEFT_CHECK(shape.in_run == 0 || (shape.in_run > 0 && shape.blocks % shape.in_run == 0));
  const auto blocks = static_cast<std::size_t>(shape.blocks);
  outgoing_.resize(members.size() * blocks);
  for (std::size_t m = 0; m < members.size(); ++m) {
    Peer& peer = peers_.emplace_back();
    peer.rank = members[m];
    if (peer.rank == transport.rank()) self_ = m;
    peer.out.reserve(blocks);
    peer.in.reserve(blocks);
    peer.table_out.reserve(blocks);
    peer.table_in.reserve(blocks);
  }
  WEFT_CHECK(peers_[self_].rank == transport.rank());
}

// A peer's ranges may be wrong, but must not lead beyond the buffer.
void UnevenRun::check(std::span<const ElementRange> windows) const {
  for (const ElementRange& window : windows) {
    if (window.empty() || (window.begin >= 0 && window.end <= shape_.units)) continue;
    throw RunFailed(fmt::format("units {}..{} of a block of {}", window.begin, window.end, shape_.units));
  }
}

void UnevenRun::place(std::span<const ElementRange> windows, std::size_t member, std::byte* buffer,
                      std::vector<Segment>& segments) const {
  segments.clear();
  const auto blocks = static_cast<std::size_t>(shape_.blocks);
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t at = place_of(member, b);
    const ElementRange& window = windows[at];
    if (window.empty()) continue;
    std::byte* const block = buffer + static_cast<std::int64_t>(at) * block_bytes();
    segments.push_back({block + window.begin * shape_.unit_bytes, window.size() * shape_.unit_bytes});
  }
}

void UnevenRun::find_tables(std::size_t member, ElementRange* windows, std::vector<Segment>& tables) const {
  const std::int64_t in_run = shape_.in_run == 0 ? shape_.blocks : shape_.in_run;
  tables.clear();
  for (std::int64_t b = 0; b < shape_.blocks; b += in_run) {
    tables.push_back({reinterpret_cast<std::byte*>(windows + place_of(member, static_cast<std::size_t>(b))),
                      in_run * static_cast<std::int64_t>(sizeof(ElementRange))});
  }
}

void UnevenRun::start(std::span<const Segment> input, std::span<const Segment> output) {
  for (const std::span<const Segment> side : {input, output}) {
    WEFT_CHECK(side.size() == 2 && side[0].bytes == buffer_bytes() && side[1].bytes == table_bytes());
  }
  const auto windows = [](const Segment& table) {
    return std::span(reinterpret_cast<ElementRange*>(table.data),
                     static_cast<std::size_t>(table.bytes) / sizeof(ElementRange));
  };
  start(input[0].data, windows(input[1]), output[0].data, windows(output[1]));
}

void UnevenRun::start(const std::byte* input, std::span<const ElementRange> outgoing, std::byte* output,
                      std::span<ElementRange> incoming) {
  WEFT_CHECK(done() && outgoing.size() == outgoing_.size() && incoming.size() == outgoing_.size());
  check(outgoing);
  std::copy(outgoing.begin(), outgoing.end(), outgoing_.begin());
  output_ = output;
  incoming_ = incoming;
  // Every rank begins with a different peer, so that not all send to the same one.
  for (std::size_t i = 1; i < peers_.size(); ++i) {
    const std::size_t m = (self_ + i) % peers_.size();
    Peer& peer = peers_[m];
    if (!shape_.known) {
      find_tables(m, outgoing_.data(), peer.table_out);
      find_tables(m, incoming_.data(), peer.table_in);
      peer.table_received = transport_.receive(peer.rank, channel_, {.dst = peer.table_in, .operand = {}});
      peer.table_sent = transport_.send(peer.rank, channel_, peer.table_out);
      peer.telling = peer.listening = true;
      left_ += 2;
    } else {
      receive(m);
    }
    place(outgoing_, m, const_cast<std::byte*>(input), peer.out);
    if (peer.out.empty()) continue;
    peer.sent = transport_.send(peer.rank, channel_ + 1, peer.out);
    peer.sending = true;
    ++left_;
  }
  // Copies the rows that stay on this rank.
  Peer& own = peers_[self_];
  place(outgoing_, self_, const_cast<std::byte*>(input), own.out);
  place(outgoing_, self_, output, own.in);
  for (std::size_t s = 0; s < own.out.size(); ++s) {
    std::memcpy(own.in[s].data, own.out[s].data, static_cast<std::size_t>(own.out[s].bytes));
  }
  if (shape_.known) return;
  for (std::int64_t b = 0; b < shape_.blocks; ++b) {
    const std::size_t at = place_of(self_, static_cast<std::size_t>(b));
    incoming_[at] = outgoing_[at];
  }
}

// Called when it is known what a member will send.
void UnevenRun::receive(std::size_t member) {
  Peer& peer = peers_[member];
  for (std::int64_t b = 0; b < shape_.blocks; ++b) {
    check(incoming_.subspan(place_of(member, static_cast<std::size_t>(b)), 1));
  }
  place(incoming_, member, output_, peer.in);
  if (peer.in.empty()) return;
  peer.received = transport_.receive(peer.rank, channel_ + 1, {.dst = peer.in, .operand = {}});
  peer.receiving = true;
  ++left_;
}

bool UnevenRun::advance() {
  bool moved = false;
  const auto ended = [&](bool& under_way, Ticket ticket) {
    if (!under_way || !transport_.done(ticket)) return false;
    under_way = false;
    --left_;
    return moved = true;
  };
  for (std::size_t m = 0; m < peers_.size(); ++m) {
    Peer& peer = peers_[m];
    if (ended(peer.listening, peer.table_received)) receive(m);
    ended(peer.telling, peer.table_sent);
    ended(peer.sending, peer.sent);
    ended(peer.receiving, peer.received);
  }
  return moved;
}

std::string UnevenRun::waits_for() const {
  for (const Peer& peer : peers_) {
    if (peer.listening) return fmt::format("what rank {} will send", peer.rank);
    if (peer.receiving) return fmt::format("receiving from rank {}", peer.rank);
  }
  for (const Peer& peer : peers_) {
    if (peer.sending || peer.telling) return fmt::format("sending to rank {}", peer.rank);
  }
  return "nothing";
}

}  // namespace weft
