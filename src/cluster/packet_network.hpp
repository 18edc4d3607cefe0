// Simulates messages over the links of a cluster as TCP carries them. They are cut into packets that queue before every
// link of their path, with at most a window of bytes unacknowledged per connection; acknowledgements queue on the way
// back. cluster/flow_network.hpp gives the same result with less work for long, equal streams. This model also shows
// that a stream over one crowded link gets more of it than a stream over two, that a link's saved burst goes to whoever
// comes first, and that control messages wait behind data.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

class PacketNetwork {
 public:
  struct Options {
    double slowdown = 1;  // of all links and latencies
    Bytes window{40 << 10};
    // Messages of at most so many bytes (with their headers) have a window of their own, and all its packets may queue
    // at the source.
    Bytes small{};
    Bytes window_of_small{96 << 10};
    Bytes packet{8 << 10};
    Bytes spare{256 << 10};
    // Time that sending and receiving takes on a device, which does one piece of work after the other: bytes at this
    // rate if as many are sent as received (0: no time), and half of per_message at each end of a message.
    Bandwidth host_rate{};
    double senders_share = 0.25;  // of the work on bytes; the rest is the receiver's
    Nanos per_message{};
    // Congestion windows depend on their history, so some start smaller, by up to this fraction. Each acknowledged byte
    // opens them by half a byte.
    double window_spread = 0.3;
    std::int64_t at_source = 3;  // packets of large messages of a connection that stand in line before their first
                                 // link; the others of the window come after them, so that connections take turns there
  };
  // Links start with their full burst (LevelSpec::burst).
  PacketNetwork(const Cluster& cluster, const Options& options);

  // Opens a path from one device to another on which messages keep their order. Returns its number.
  std::int32_t open_connection(Rank src, Rank dst);
  // Starts a message at `now`, which must never decrease. `landing` is the time that the receiver works on the message.
  std::int32_t start(std::int32_t connection, Bytes bytes, Nanos now, Nanos landing = {});
  // Starts a control message that overtakes what its connection has not sent yet.
  std::int32_t start_word(std::int32_t connection, Nanos now);
  // Keeps a device busy for `time` after its present work. Returns when that ends.
  Nanos work(Rank device, Nanos now, Nanos time);
  // Messages and control messages that arrived since the last call of clear_arrived, and when.
  struct Arrival {
    std::int32_t message = 0;
    Nanos time;
  };
  const std::vector<Arrival>& arrived() const { return arrived_; }
  // Likewise, messages that the sender's system has taken over: at most `spare` bytes of them are still unsent.
  const std::vector<Arrival>& taken_over() const { return taken_over_; }
  void clear_arrived() {
    arrived_.clear();
    taken_over_.clear();
  }
  std::optional<Nanos> next_event() const;
  void advance(Nanos now);

 private:
  struct Link {
    double rate = 0;  // bytes per nanosecond
    Nanos saved;      // its burst as time
    Nanos due, last;  // when all packets so far would have passed without the burst; when the last one did
  };
  struct Connection {
    std::vector<std::int32_t> way, back;  // links
    Rank src, dst;
    Nanos latency;
    std::int64_t window = 0;
    std::int64_t under_way = 0;          // bytes not acknowledged
    std::int64_t at_source = 0;          // packets
    std::int64_t started = 0, sent = 0;  // bytes, of all messages
    std::deque<std::int32_t> unsent;     // messages
    std::deque<std::int32_t> own;        // messages that the system has not taken over
  };
  struct Message {
    std::int32_t connection = 0;
    std::int64_t total = 0, unsent = 0, missing = 0;  // bytes
    std::int64_t end = 0;  // bytes that its connection has started up to and including this message
    Nanos landing;
  };
  enum class Kind : std::uint8_t { data, word, acknowledgement };
  struct Packet {
    Nanos time;
    std::int64_t sequence = 0;  // ties in the order of creation
    Kind kind = Kind::data;
    std::int32_t hop = 0;
    std::int32_t connection = 0, message = 0;
    std::int64_t bytes = 0;
    friend bool operator<(const Packet& a, const Packet& b) {
      return std::tie(a.time, a.sequence) > std::tie(b.time, b.sequence);  // earliest on top
    }
  };

  std::int32_t new_message(std::int32_t connection, std::int64_t bytes);
  void send_what_fits(std::int32_t connection, Nanos now);
  void take_over(Connection& connection, Nanos now);
  void move(Packet packet);
  Nanos passes(Link& link, Nanos arrives, std::int64_t bytes) const;
  Nanos handling(std::int64_t bytes, double share, bool with_message) const;

  const Cluster& cluster_;
  Options options_;
  std::vector<Link> links_;        // directed
  std::vector<Nanos> busy_until_;  // by device
  std::vector<Connection> connections_;
  std::vector<Message> messages_;
  std::vector<Arrival> arrived_, taken_over_;
  std::priority_queue<Packet> packets_;
  std::int64_t sequence_ = 0;
};

}  // namespace weft
