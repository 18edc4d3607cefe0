// The second and third step of TACCL's synthesis: in which order chunks cross their links, and which of them cross
// together, with exact times.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/synthesis/sketch_routes.hpp"

namespace weft {

// TACCL's two rules for the chunk that goes first: the one with the longest way before it, or the one that can be sent
// first. Ties go by the other rule.
enum class ChunkOrder : std::uint8_t { longest_way_first, first_ready_first };

struct SketchMessage {
  std::int32_t edge = 0;
  std::vector<std::int32_t> chunks;  // consecutive numbers, ascending: they lie side by side in memory
  double start = 0, arrival = 0;     // seconds
  friend bool operator==(const SketchMessage&, const SketchMessage&) = default;
};

struct TimedMessages {
  std::vector<SketchMessage> messages;  // in the order of their starts
  double seconds = 0;                   // until the last arrives
};

// Every chunk by itself: a link carries one message after the other, and nobody sends what it has not received.
TimedMessages order_chunks(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                           ChunkOrder order);

// Joins neighbours on an edge whose chunks lie side by side, where everything then ends sooner: a message has its
// latency once, but its first chunk waits for its last. All combinations are tried where there are few (kMostExact
// pairs of neighbours); otherwise runs of several lengths, then pair after pair as long as that helps.
TimedMessages join_chunks(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                          const TimedMessages& alone);
inline constexpr std::size_t kMostExact = 10;

// The messages with times, each sent as soon as its chunks are there and its links are free, those of earlier `start`
// first. No messages where some wait for each other.
TimedMessages timed(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                    std::vector<SketchMessage> messages);

}  // namespace weft
