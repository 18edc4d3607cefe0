// What every transport must do, as tests over a Transport&. All ranks run the same case at the same time, each with its
// own object; ranks may be threads or processes. Values are a function of (sender, receiver, channel, message, place),
// so that a byte from anywhere else shows.
//
//   for (const TransportCase& each : transport_cases()) each.body(transport);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/transport.hpp"

namespace weft::transport_contract {

using Bytestring = std::vector<std::byte>;

// Which message it is, as both ends know it.
struct MessageId {
  std::int64_t src = 0;
  std::int64_t dst = 0;
  std::int64_t channel = 0;
  std::int64_t number = 0;
};

inline std::byte expected_byte(const MessageId& id, std::int64_t place) {
  std::uint64_t mix = static_cast<std::uint64_t>(id.src * 1000003 + id.dst * 10007 + id.channel * 101 + id.number);
  mix = (mix + static_cast<std::uint64_t>(place)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<std::byte>(mix >> 56);
}

inline Bytestring make_message(const MessageId& id, std::int64_t bytes) {
  Bytestring data(static_cast<std::size_t>(bytes));
  for (std::int64_t i = 0; i < bytes; ++i) data[i] = expected_byte(id, i);
  return data;
}

inline void expect_message(const Bytestring& data, const MessageId& id) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] == expected_byte(id, static_cast<std::int64_t>(i))) continue;
    ADD_FAILURE() << "message " << id.number << " of " << data.size() << " bytes from " << id.src << " to " << id.dst
                  << " on channel " << id.channel << " is wrong at byte " << i;
    return;
  }
}

// Cuts a buffer into segments of the given lengths, repeated; 0 gives an empty segment.
inline std::vector<Segment> cut(Bytestring& data, const std::vector<std::int64_t>& lengths) {
  std::vector<Segment> segments;
  const std::int64_t total = std::ssize(data);
  std::int64_t begin = 0;
  for (std::size_t i = 0; begin < total; ++i) {
    const std::int64_t length = std::min(lengths[i % lengths.size()], total - begin);
    segments.push_back({data.data() + begin, length});
    begin += length;
  }
  return segments;
}

// The same cut, its segments in the opposite order in memory: nothing in it is contiguous.
inline std::vector<Segment> cut_backwards(Bytestring& data, std::int64_t length) {
  std::vector<Segment> segments;
  for (std::int64_t end = std::ssize(data); end > 0; end -= length) {
    const std::int64_t begin = std::max<std::int64_t>(end - length, 0);
    segments.push_back({data.data() + begin, end - begin});
  }
  return segments;
}

inline std::vector<Segment> whole(Bytestring& data) {
  return {{data.data(), std::ssize(data)}};
}

inline Landing into(std::span<const Segment> segments) {
  Landing landing;
  landing.dst = segments;
  return landing;
}

// Asks until all are done, as a communication thread does. A transport that stands still fails instead of hanging.
inline void finish(Transport& transport, std::vector<Ticket> tickets) {
  const auto deadline = Transport::Clock::now() + std::chrono::seconds(60);
  while (!tickets.empty()) {
    std::erase_if(tickets, [&](Ticket ticket) { return transport.done(ticket); });
    if (tickets.empty()) return;
    const auto now = Transport::Clock::now();
    if (now > deadline) throw std::runtime_error(std::to_string(tickets.size()) + " messages do not arrive");
    transport.pause(now + std::chrono::milliseconds(100));
  }
}

inline void send_and_receive(Transport& transport, std::int64_t dst, std::int64_t src, std::int64_t channel,
                             std::int64_t bytes) {
  const std::int64_t self = transport.rank();
  Bytestring outgoing = make_message({self, dst, channel, 0}, bytes);
  Bytestring incoming(static_cast<std::size_t>(bytes));
  const std::vector<Segment> from = whole(outgoing);
  const std::vector<Segment> to = whole(incoming);
  const Ticket received = transport.receive(src, channel, into(to));
  const Ticket sent = transport.send(dst, channel, from);
  finish(transport, {received, sent});
  expect_message(incoming, {src, self, channel, 0});
}

inline std::int64_t next_of(const Transport& transport) {
  return (transport.rank() + 1) % transport.size();
}

inline std::int64_t previous_of(const Transport& transport) {
  return (transport.rank() + transport.size() - 1) % transport.size();
}

// Everybody sends to the next rank and receives from the previous one; with two ranks, both directions at once.
inline void ring_of_every_size(Transport& transport) {
  for (const std::int64_t bytes : {0, 1, 7, 4096, 65537, 1 << 20, 8 << 20}) {
    send_and_receive(transport, next_of(transport), previous_of(transport), 3, bytes);
  }
}

inline void all_pairs_at_once(Transport& transport) {
  constexpr std::int64_t kBytes = 100'003;
  const std::int64_t self = transport.rank();
  const std::int64_t size = transport.size();
  std::vector<Bytestring> outgoing;
  std::vector<Bytestring> incoming;
  for (std::int64_t peer = 0; peer < size; ++peer) {
    outgoing.push_back(make_message({self, peer, 9, 0}, kBytes));
    incoming.emplace_back(static_cast<std::size_t>(kBytes));
  }
  std::vector<std::vector<Segment>> segments;
  segments.reserve(2 * size);  // what a message names must stay where it is
  std::vector<Ticket> tickets;
  for (std::int64_t peer = 0; peer < size; ++peer) {
    if (peer == self) continue;
    segments.push_back(whole(outgoing[peer]));
    tickets.push_back(transport.send(peer, 9, segments.back()));
    segments.push_back(whole(incoming[peer]));
    tickets.push_back(transport.receive(peer, 9, into(segments.back())));
  }
  finish(transport, tickets);
  for (std::int64_t peer = 0; peer < size; ++peer) {
    if (peer != self) expect_message(incoming[peer], {peer, self, 9, 0});
  }
}

struct Stream {
  std::int64_t channel = 0;
  std::vector<std::int64_t> sizes;  // of its messages, in order
};

struct StreamMessage {
  MessageId id;
  Bytestring data;
  std::vector<Segment> segments;
};

// All messages of all streams are under way at once, to the next rank and from the previous one. The sender starts them
// stream by stream, the receiver one of each stream in turn: only the order within a channel is the same.
inline void run_streams(Transport& transport, const std::vector<Stream>& streams) {
  std::vector<StreamMessage> outgoing;
  std::vector<StreamMessage> incoming;
  std::size_t longest = 0;
  for (const Stream& stream : streams) {
    longest = std::max(longest, stream.sizes.size());
    for (std::size_t k = 0; k < stream.sizes.size(); ++k) {
      const MessageId id{transport.rank(), next_of(transport), stream.channel, static_cast<std::int64_t>(k)};
      outgoing.push_back({id, make_message(id, stream.sizes[k]), {}});
    }
  }
  for (std::size_t k = 0; k < longest; ++k) {
    for (const Stream& stream : streams) {
      if (k >= stream.sizes.size()) continue;
      const MessageId id{previous_of(transport), transport.rank(), stream.channel, static_cast<std::int64_t>(k)};
      incoming.push_back({id, Bytestring(static_cast<std::size_t>(stream.sizes[k])), {}});
    }
  }
  std::vector<Ticket> tickets;
  for (StreamMessage& each : outgoing) {
    each.segments = whole(each.data);
    tickets.push_back(transport.send(each.id.dst, each.id.channel, each.segments));
  }
  for (StreamMessage& each : incoming) {
    each.segments = whole(each.data);
    tickets.push_back(transport.receive(each.id.src, each.id.channel, into(each.segments)));
  }
  finish(transport, tickets);
  for (const StreamMessage& each : incoming) expect_message(each.data, each.id);
}

inline void messages_of_a_channel_stay_in_order(Transport& transport) {
  Stream stream{.channel = 5, .sizes = std::vector<std::int64_t>(300)};
  std::iota(stream.sizes.begin(), stream.sizes.end(), 0);
  run_streams(transport, {stream});
}

// Transports carry long and short messages differently; their order must not change for that.
inline void short_messages_do_not_overtake_long_ones(Transport& transport) {
  run_streams(transport, {{.channel = 5, .sizes = {3 << 20, 1, 0, 2 << 20, 8, 0, 100'000, 1, 1 << 20, 1}}});
}

inline void many_channels_do_not_mix(Transport& transport) {
  std::vector<Stream> streams;
  for (std::int64_t i = 0; i < 63; ++i) streams.push_back({.channel = i * 16'644, .sizes = {1000, 10, 70'000, 1001}});
  streams.push_back({.channel = (std::int64_t{1} << 20) - 1, .sizes = {1000, 0, 1}});  // the highest
  run_streams(transport, streams);
}

inline void segments_are_cut_differently_on_both_ends(Transport& transport) {
  const std::int64_t self = transport.rank();
  for (const std::int64_t bytes : {1, 999, 100'003}) {
    const MessageId out{self, next_of(transport), 2, bytes};
    const MessageId in{previous_of(transport), self, 2, bytes};
    // What is sent from memory backwards must arrive as a whole, and what is sent as a whole arrive backwards.
    Bytestring outgoing = make_message(out, bytes);
    std::ranges::reverse(outgoing);
    const std::vector<Segment> single_bytes = cut_backwards(outgoing, 1);
    Bytestring incoming(static_cast<std::size_t>(bytes));
    const std::vector<Segment> to = cut(incoming, {0, 17, 1024});
    finish(transport, {transport.receive(in.src, 2, into(to)), transport.send(out.dst, 2, single_bytes)});
    expect_message(incoming, in);

    Bytestring plain = make_message(out, bytes);
    const std::vector<Segment> from = cut(plain, {5, 0, 100});
    std::ranges::fill(incoming, std::byte{0});
    const std::vector<Segment> backwards = cut_backwards(incoming, 1);
    finish(transport, {transport.send(out.dst, 2, from), transport.receive(in.src, 2, into(backwards))});
    std::ranges::reverse(incoming);
    expect_message(incoming, in);
  }
}

// Tickets are reused; a message must never be mistaken for an earlier one.
inline void rounds_follow_each_other(Transport& transport) {
  for (std::int64_t round = 0; round < 200; ++round) {
    send_and_receive(transport, next_of(transport), previous_of(transport), round % 3, (round * 7919) % 20'000);
  }
}

// Both directions of a pair at once, long enough that a transport that sends first and receives then would stand still.
inline void both_directions_carry_long_messages(Transport& transport) {
  const std::int64_t peer = transport.rank() ^ 1;
  if (peer >= transport.size()) return;
  for (int round = 0; round < 2; ++round) send_and_receive(transport, peer, peer, 1, 8 << 20);
}

// The first receive is asked for when the message has long arrived, and the first message before its receive is there.
inline void either_end_may_come_first(Transport& transport) {
  for (const std::int64_t bytes : {0, 100, 300'000}) {
    const std::int64_t self = transport.rank();
    Bytestring outgoing = make_message({self, next_of(transport), 8, 0}, bytes);
    Bytestring incoming(static_cast<std::size_t>(bytes));
    const std::vector<Segment> from = whole(outgoing);
    const std::vector<Segment> to = whole(incoming);
    std::vector<Ticket> tickets;
    const bool sends_first = self % 2 == 0;
    if (sends_first) tickets.push_back(transport.send(next_of(transport), 8, from));
    transport.pause(Transport::Clock::now() + std::chrono::milliseconds(5));
    tickets.push_back(transport.receive(previous_of(transport), 8, into(to)));
    if (!sends_first) tickets.push_back(transport.send(next_of(transport), 8, from));
    finish(transport, tickets);
    expect_message(incoming, {previous_of(transport), self, 8, 0});
  }
}

struct TransportCase {
  const char* name;
  void (*body)(Transport&);
};

inline std::ostream& operator<<(std::ostream& out, const TransportCase& which) {
  return out << which.name;
}

// For two ranks and more.
inline std::vector<TransportCase> transport_cases() {
  return {{"RingOfEverySize", ring_of_every_size},
          {"AllPairsAtOnce", all_pairs_at_once},
          {"MessagesOfAChannelStayInOrder", messages_of_a_channel_stay_in_order},
          {"ShortMessagesDoNotOvertakeLongOnes", short_messages_do_not_overtake_long_ones},
          {"ManyChannelsDoNotMix", many_channels_do_not_mix},
          {"SegmentsAreCutDifferentlyOnBothEnds", segments_are_cut_differently_on_both_ends},
          {"RoundsFollowEachOther", rounds_follow_each_other},
          {"BothDirectionsCarryLongMessages", both_directions_carry_long_messages},
          {"EitherEndMayComeFirst", either_end_may_come_first}};
}

}  // namespace weft::transport_contract
