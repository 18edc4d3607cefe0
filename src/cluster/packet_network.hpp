// Messages over the links of a cluster as TCP carries them: cut into packets that stand in line before every link on
// their way, at most a window of them under way on a connection; what arrives is acknowledged, and the acknowledgement
// stands in line on the way back. cluster/flow_network.hpp says in few numbers what comes of that where streams are
// long and alike; here also that who crosses one crowded link gets more of it than who crosses two, that what a link
// has saved up is taken first come, first served, and that a word to the other side waits behind data.
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
    // Messages of at most so many bytes (with their headers) have a window of their own, and all of it stands in line.
    Bytes small{};
    Bytes window_of_small{96 << 10};
    Bytes packet{8 << 10};
    Bytes spare{256 << 10};
    // What sending and receiving takes of a device's own time, one thing after the other: bytes at this rate if as many
    // are sent as received (0: none), and for every message half of this at each end.
    Bandwidth host_rate{};
    double senders_share = 0.25;  // of the work on bytes, the receiver's being the rest
    Nanos per_message{};
    // Windows have histories: at first some are smaller, by up to this part. What is acknowledged opens them again,
    // half a byte for each.
    double window_spread = 0.3;
    std::int64_t at_source = 3;  // packets of large messages of a connection that stand in line before their first
                                 // link; the others of the window come after them, so that connections take turns there
  };
  // All links have saved up what they can (LevelSpec::burst).
  PacketNetwork(const Cluster& cluster, const Options& options);

  // A way from one device to another on which messages keep their order.
  std::int32_t open_connection(Rank src, Rank dst);
  // A message sets out at `now`, which never goes back. `landing`: what the receiver makes of it takes so long in all.
  std::int32_t start(std::int32_t connection, Bytes bytes, Nanos now, Nanos landing = {});
  // A word that overtakes what its connection has not sent yet.
  std::int32_t start_word(std::int32_t connection, Nanos now);
  // A device works on its own for so long; returns when it has done so.
  Nanos work(Rank device, Nanos now, Nanos time);
  // Of messages and words that arrived since the last call of clear_arrived: which, and when.
  struct Arrival {
    std::int32_t message = 0;
    Nanos time;
  };
  const std::vector<Arrival>& arrived() const { return arrived_; }
  // Of messages likewise that the sender's system has taken over: no more of them than `spare` is to be sent.
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
    Nanos saved;      // what it saves up, as time
    Nanos due, last;  // when all before would be through without savings; when the last was
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
    std::int64_t end = 0;                             // of all that its connection has started
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
