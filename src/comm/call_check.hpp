// The checking mode: before a collective runs, its members tell each other which call they are about to make.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/transport.hpp"

namespace weft {

// Plain bytes on the wire.
struct CallNote {
  std::int64_t turn = 0;  // how many calls the queue has had
  std::int64_t elements = 0;
  std::uint64_t shape = 0;  // a hash of all sizes, of the members and of whether it is in place
  // Which call it is (PreparedCall::identity), or a hash of the label where the call has no number.
  std::uint64_t identity = 0;
  std::int32_t kind = 0, op = 0, type = 0, root = 0;
  std::array<char, 32> algorithm{};
  std::array<char, 64> label{};  // for messages only: the ends of a message may use different labels
};

// Whether two members are about to make the same call.
bool same_call(const CallNote& a, const CallNote& b);

std::string in_words(const CallNote& note);

class CallCheck {
 public:
  CallCheck(std::vector<std::int64_t> members, std::int64_t channel, Transport& transport);

  void start(const CallNote& mine);
  // True if anything happened.
  bool advance();
  bool done() const { return in_flight_ == 0; }
  // When done, says what differs, if anything. The note that most members share is taken for the right one.
  std::optional<std::string> mismatch() const;
  // A member that has not told yet; -1 where all have.
  std::int64_t waits_for_rank() const;

 private:
  struct Peer {
    std::int64_t rank = 0;
    CallNote note;
    Segment note_segment;
    Ticket send, receive;
    bool sent = true, received = true;
  };
  std::int64_t channel_;
  Transport& transport_;
  CallNote mine_;
  Segment mine_segment_;
  std::vector<Peer> peers_;  // all members but this rank
  std::int64_t in_flight_ = 0;
};

}  // namespace weft
