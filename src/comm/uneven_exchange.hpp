// An all_to_all whose sizes are data. Every member has `blocks` blocks for every member, in a buffer with room for
// whole blocks: [member][block][unit], or in runs, [run][member][block of the run][unit]. The exchange is told at its
// start which units of a block travel; they land at the same place in the receiver's block. Receivers are told first,
// unless they know. A unit range (begin..end of a block) may be empty.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/element_range.hpp"
#include "comm/transport.hpp"

namespace weft {

struct UnevenBlocks {
  std::int64_t blocks = 1;      // for each member
  std::int64_t units = 0;       // of a block
  std::int64_t unit_bytes = 0;  // a row of a matrix, say
  // Whether the receiver knows what will arrive, because it sent the same units in an exchange before.
  bool known = false;
  std::int64_t in_run = 0;  // consecutive blocks of a member, which divide `blocks`; 0: all of them
  friend bool operator==(const UnevenBlocks&, const UnevenBlocks&) = default;
};

class UnevenRun {
 public:
  // Uses two channels from `first_channel` on.
  UnevenRun(const UnevenBlocks& shape, std::vector<std::int64_t> members, std::int64_t first_channel,
            Transport& transport);

  std::int64_t buffer_bytes() const { return std::ssize(peers_) * shape_.blocks * block_bytes(); }
  // Bytes of a table that has a unit range for each member and block.
  std::int64_t table_bytes() const {
    return std::ssize(peers_) * shape_.blocks * static_cast<std::int64_t>(sizeof(ElementRange));
  }

  // Buffers of buffer_bytes(); `outgoing` is read at once, `incoming` read or written. No memory is allocated from here
  // on.
  void start(const std::byte* input, std::span<const ElementRange> outgoing, std::byte* output,
             std::span<ElementRange> incoming);
  // The same with the blocks and then the table on each side.
  void start(std::span<const Segment> input, std::span<const Segment> output);
  bool advance();  // true if anything happened
  bool done() const { return left_ == 0; }
  std::string waits_for() const;

 private:
  struct Peer {
    std::int64_t rank = 0;
    std::vector<Segment> table_out, table_in;  // by run
    std::vector<Segment> out, in;
    Ticket table_sent, table_received, sent, received;
    bool telling = false, listening = false, sending = false, receiving = false;  // under way
  };
  // Where a member's block and its range lie among all of them.
  std::size_t place_of(std::size_t member, std::size_t block) const {
    const auto in_run = static_cast<std::size_t>(shape_.in_run == 0 ? shape_.blocks : shape_.in_run);
    return (block / in_run * peers_.size() + member) * in_run + block % in_run;
  }
  void find_tables(std::size_t member, ElementRange* windows, std::vector<Segment>& tables) const;
  std::int64_t block_bytes() const { return shape_.units * shape_.unit_bytes; }
  void check(std::span<const ElementRange> windows) const;
  void place(std::span<const ElementRange> windows, std::size_t member, std::byte* buffer,
             std::vector<Segment>& segments) const;
  void receive(std::size_t member);

  UnevenBlocks shape_;
  std::int64_t channel_;
  Transport& transport_;
  std::vector<Peer> peers_;  // by member, this rank too
  std::size_t self_ = 0;
  std::vector<ElementRange> outgoing_;  // kept, because it is sent
  std::byte* output_ = nullptr;
  std::span<ElementRange> incoming_;
  std::int64_t left_ = 0;  // messages under way or to come
};

}  // namespace weft
