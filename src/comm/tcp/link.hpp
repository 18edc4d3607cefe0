// The data connection to one peer. Messages of many channels share it, cut into slices that take turns.
//
// The receiver drives. For every posted receive a tiny *ready* frame goes back, ahead of all data, and announces it; a
// large message starts only then. So everything that arrives has a destination, nothing is copied, and no channel
// blocks another. Small messages need not wait: up to kEarlySlots of them may arrive unannounced and are kept until
// their receive is posted, whose announcement frees the slot. Such announcements are not urgent: they travel along with
// data unless slots become scarce, because a packet of its own would cost both ends as much as a small message.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/segment_cursor.hpp"
#include "comm/tcp/landing_cursor.hpp"
#include "comm/tcp/receive_window.hpp"
#include "comm/tcp/socket.hpp"

namespace weft::tcp {

// One message of ours, sent or received.
struct Transfer {
  std::int64_t peer = -1;
  std::int64_t channel = 0;
  bool receives = false;
  std::uint32_t number = 0;  // counts the messages of the channel in this direction, small and large
  SegmentCursor src;         // of a send
  LandingCursor dst;         // of a receive
  std::int64_t total = 0;
  std::int64_t moved = 0;
  bool finished = false;
  std::uint64_t asked = 0;   // the pass in which the caller last asked for it
  Transfer* next = nullptr;  // in its channel's line
};

struct TransferLine {
  Transfer* first = nullptr;
  Transfer* last = nullptr;
  void push(Transfer& transfer);
  void pop();
};

enum class LinkKind : std::uint8_t { small_messages, large_messages };
LinkKind link_kind(std::int64_t bytes);

// Limit on channel numbers, which come from the peer.
inline constexpr std::int64_t kMaxChannels = 1 << 20;

class Link {
 public:
  // The links of a rank share the scratch. `only_peer` says that the rank has no other peer.
  Link(std::int64_t rank, std::int64_t peer, Socket socket, Scratch& scratch, LinkKind kind, bool only_peer);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void send(Transfer& transfer);
  void receive(Transfer& transfer);

  // Both do what is possible without waiting, in bounded portions.
  void read();
  void write();
  // Whether announcements wait to travel along with data; after hurry() they are sent without it.
  bool has_patience() const { return open() && !control_.empty() && !control_is_urgent(); }
  void hurry() { hurried_ = !control_.empty(); }
  // Whether a transfer was finished, or the link closed, since this was last asked.
  bool take_news() { return std::exchange(news_, false); }
  // Whether the next read or write can do something before the system reports anything new.
  bool can_go_on() const { return open() && (readable_ || (writable_ && has_output())); }
  void set_ready(bool readable, bool writable);

  // Bytes that have passed in either direction.
  std::uint64_t moved() const { return moved_; }

  bool open() const { return closed_.empty(); }
  // Why nothing can pass any more.
  const std::string& closed() const { return closed_; }
  // Whether the reason is a message that does not fit its receive, and not the peer's end.
  bool broken_by_mismatch() const { return mismatch_; }
  // Looks for the counterpart of a transfer that waits on the other link of this peer. If it is here, the two sides
  // disagree on the size, and the link closes with that reason.
  void look_for_counterpart(const Transfer& elsewhere);
  // Waits until the peer has received what was sent, then closes.
  void finish(Clock::time_point deadline);
  int fd() const { return socket_.fd(); }

 private:
  struct EarlyMessage;
  struct Channel;
  struct Header {
    std::uint32_t kind = 0;
    std::uint32_t channel = 0;
    // Of a data frame, the bytes that follow and the message's number; of a ready frame, how many receives it
    // announces.
    std::uint64_t slice = 0;
    std::uint64_t total = 0;  // of the message; of a ready frame: the number of the last receive
  };
  struct OutgoingFrame {
    Transfer* transfer = nullptr;
    Channel* channel = nullptr;
    Header header;
    std::size_t header_sent = 0;
    std::int64_t left = 0;
  };
  struct IncomingFrame {
    Channel* channel = nullptr;
    Transfer* transfer = nullptr;
    EarlyMessage* early = nullptr;
    std::int64_t left = 0;
  };

  Channel& channel(std::int64_t number);
  bool may_send(const Channel& channel) const;
  void take_turn(Channel& channel);
  void choose_frame();
  void announce(const Transfer& receive);
  bool has_output() const { return frame_.transfer != nullptr || first_turn_ != nullptr || control_is_urgent(); }
  bool control_is_urgent() const;
  bool control_goes() const;
  std::size_t describe_output(std::span<iovec> entries);
  void account_output(std::int64_t bytes);
  void end_outgoing_frame();

  void consume_staged();
  void begin_frame(const Header& header);
  void handle_ready(Channel& channel, std::uint64_t count, std::uint64_t last_number);
  void begin_data(Channel& channel, const Header& header);
  void land(const std::byte* bytes, std::int64_t count);
  void landed(std::int64_t count);
  void end_incoming_frame();
  std::size_t describe_input(std::span<iovec> entries);
  void wake_for(std::int64_t bytes);
  bool fits(const Transfer& transfer, std::int64_t total, std::uint32_t number);
  EarlyMessage* keep_early(Channel& channel, std::int64_t total);
  void take_early(Channel& channel, Transfer& transfer);
  void complete(Transfer& transfer);
  void close(std::string why);

  const std::int64_t rank_;
  const std::int64_t peer_;
  Socket socket_;
  std::optional<ReceiveWindow> window_;
  Scratch& scratch_;
  std::string closed_;
  bool mismatch_ = false;
  bool readable_ = true;
  bool writable_ = true;
  bool news_ = false;
  std::uint64_t moved_ = 0;
  std::int64_t wakes_for_ = 1;  // bytes that must arrive before the system reports them

  std::unordered_map<std::int64_t, std::unique_ptr<Channel>> channels_;
  Channel* recent_ = nullptr;  // the channel that was looked up last

  const LinkKind kind_;
  std::vector<std::byte> control_;  // ready frames that wait
  std::size_t control_sent_ = 0;
  std::size_t announcing_ = 0;  // receives that they announce
  bool hurried_ = false;
  OutgoingFrame frame_;
  Channel* first_turn_ = nullptr;  // the line of channels that may send
  Channel* last_turn_ = nullptr;
  std::int64_t early_out_ = 0;  // messages sent before they were announced

  IncomingFrame in_;
  std::vector<std::byte> staging_;  // headers, and data that was read along with them
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;
  std::vector<std::byte> early_memory_;  // allocated when the first early message comes
  std::vector<EarlyMessage> early_;
  EarlyMessage* free_early_ = nullptr;
  std::size_t kept_early_ = 0;
};

}  // namespace weft::tcp
