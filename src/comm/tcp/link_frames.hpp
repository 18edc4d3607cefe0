// What the two halves of a link share: frames on the wire, and the state of a channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/tcp/link.hpp"

namespace weft::tcp {

enum FrameKind : std::uint32_t { kData = 0x77656601, kReady = 0x77656602 };

inline constexpr std::int64_t kMaxEarlyBytes = 32 << 10;
inline constexpr std::size_t kEarlySlots = 8;
inline constexpr std::size_t kMaxListEntries = 64;  // segments of one system call

// A data frame carries the bytes of its slice, which need few bits, and the message's number in one field.
inline std::uint64_t joined(std::int64_t slice, std::uint32_t number) {
  return static_cast<std::uint64_t>(slice) | std::uint64_t{number} << 32;
}
inline std::int64_t slice_of(std::uint64_t joined) {
  return static_cast<std::int64_t>(joined & 0xffffffff);
}
inline std::uint32_t number_of(std::uint64_t joined) {
  return static_cast<std::uint32_t>(joined >> 32);
}

struct Link::EarlyMessage {
  std::byte* data = nullptr;
  std::uint32_t number = 0;
  std::int64_t total = 0;
  std::int64_t arrived = 0;
  EarlyMessage* next = nullptr;
};

struct Link::Channel {
  std::uint32_t number = 0;
  TransferLine out;
  std::uint64_t sent = 0;       // messages that have left
  std::uint64_t announced = 0;  // receives the peer has posted
  // Numbers of announced messages: the oldest that has not left (-1: unknown), the last, and how many consecutive ones
  // end with it.
  std::int64_t oldest_awaited = -1, last_announced = -2, in_sequence = 0;
  bool in_line = false;
  Channel* next_turn = nullptr;

  TransferLine in;
  EarlyMessage* first_early = nullptr;  // only while no receive is posted
  EarlyMessage* last_early = nullptr;

  void find_oldest_awaited();
};

}  // namespace weft::tcp
