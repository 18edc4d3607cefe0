// Simulates messages over the links of a cluster as fluids: each waits for the latency of its path, then moves bytes at
// its max-min fair share of every link direction that it crosses. The same model paces real transfers (comm/local,
// where `now` is the real clock) and predicts them (cost/program_time, where it is simulated).
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

class FlowNetwork {
 public:
  // `slowdown` divides all bandwidths and multiplies all latencies. A link that k flows share carries 1 - (k-1)
  // sharing_loss of what it carries for one flow, but never less than half: TCP streams that meet at a link disturb
  // each other.
  explicit FlowNetwork(const Cluster& cluster, double slowdown = 1, double sharing_loss = 0);

  // Opens a path from one device to another on which messages keep their order. Returns its number.
  std::int32_t open_connection(Rank src, Rank dst);
  // Starts a message at `now`, which must never decrease. Returns the number of its flow.
  std::int32_t start(std::int32_t connection, Bytes bytes, Nanos now);
  // Returns when the last byte arrived if that was by `now`, and then forgets the flow.
  std::optional<Nanos> ended(std::int32_t flow, Nanos now);
  // Processes all events up to `now`.
  void advance(Nanos now);
  // Flows that ended since the last call of clear_arrived, in the order of their ends.
  const std::vector<std::int32_t>& arrived() const { return arrived_; }
  void clear_arrived() { arrived_.clear(); }
  // Returns the next time at which something ends or begins to move, if anything is under way. Returns the present time
  // while an arrival has not been cleared.
  std::optional<Nanos> next_event() const;

 private:
  enum class State : std::uint8_t { unused, latent, queued, moving, done };
  // A directed link, and how much of every message crosses it.
  struct LinkShare {
    std::int32_t link = 0;
    double share = 1;
  };
  struct Connection {
    std::vector<LinkShare> links;
    Nanos latency;
    double best_rate = 0;             // of a flow alone
    std::vector<std::int32_t> flows;  // that have not ended, in their order
  };
  struct Flow {
    State state = State::unused;
    std::int32_t connection = 0;
    double left = 0;  // bytes
    double rate = 0;  // bytes per nanosecond
    Nanos event;      // end of the latency while latent; predicted end while moving; real end when done
  };
  // Orders a heap of latent flows. Equal times are ordered by number, so that every run has the same order.
  struct Later {
    const std::vector<Flow>& flows;
    bool operator()(std::int32_t a, std::int32_t b) const {
      return std::pair(flows[a].event, a) > std::pair(flows[b].event, b);
    }
  };
  std::optional<Nanos> next_change() const;
  Flow& flow(std::int32_t id) { return flows_[id]; }
  const Flow& flow(std::int32_t id) const { return flows_[id]; }
  Connection& connection_of(const Flow& flow) { return connections_[flow.connection]; }
  const Connection& connection_of(const Flow& flow) const { return connections_[flow.connection]; }
  void end(std::int32_t flow, Nanos time);
  void begin_next(Connection& connection, Nanos time);
  void set_rates();
  bool meets_full_link(const Flow& flow, double level) const;

  const Cluster& cluster_;
  double slowdown_, sharing_loss_;
  std::vector<Connection> connections_;
  std::vector<double> capacity_;  // by directed link, bytes per nanosecond
  std::vector<Flow> flows_;
  std::vector<std::int32_t> latent_;  // a heap, the next to begin on top
  std::vector<std::int32_t> moving_;  // in the order in which they began
  std::vector<std::int32_t> arrived_;
  std::vector<std::int32_t> unused_;
  Nanos now_;
  // Kept between calls so that the steady state allocates nothing.
  std::vector<double> room_;
  std::vector<double> users_;  // by directed link: the shares of the flows on it
  std::vector<std::int32_t> rising_, stopping_, ending_;
};

}  // namespace weft
