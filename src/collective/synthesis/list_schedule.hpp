// Schedules of chunks over a topology by list scheduling: again and again the message that arrives first is sent. A
// link carries one message after the other, and nobody sends what it has not received yet. (TACOS matches chunks to
// links in rounds and may send them before they arrive; here time decides.)
#pragma once

#include <cstdint>
#include <vector>

#include "cluster/topology.hpp"

namespace weft {

struct ScheduledMessage {
  std::int32_t from = 0, to = 0;  // ranks
  std::int64_t chunk = 0;
  double start = 0, arrival = 0;  // seconds
};

// Messages over the links of a topology, with the time until which each link is taken.
class LinkCalendar {
 public:
  explicit LinkCalendar(const Topology& topology);

  std::int32_t ranks() const { return ranks_; }
  // Whether a message gets there without another device that would pass it on.
  bool joined(std::int32_t from, std::int32_t to) const { return !way(from, to).links.empty(); }
  // How long the links of the way are busy with a message, and how long it takes alone.
  double occupied(std::int32_t from, std::int32_t to, double bytes) const;
  double alone(std::int32_t from, std::int32_t to, double bytes) const;
  // When a message that is there at `ready` would arrive.
  double arrival(std::int32_t from, std::int32_t to, double bytes, double ready) const;
  // Takes the links. Returns its start and arrival.
  ScheduledMessage send(std::int32_t from, std::int32_t to, double bytes, double ready);
  // Adds to the load of the links of the way (negative: takes it off again), and the busiest of them, in seconds.
  void add_load(std::int32_t from, std::int32_t to, double bytes);
  double busiest(std::int32_t from, std::int32_t to) const;

 private:
  struct RankWay {
    std::vector<std::int32_t> links;
    std::vector<double> seconds_per_byte;
    double latency = 0;
  };
  const RankWay& way(std::int32_t from, std::int32_t to) const { return ways_[from * ranks_ + to]; }
  double free_at(const RankWay& way) const;

  std::int32_t ranks_ = 0;
  std::vector<RankWay> ways_;
  std::vector<double> free_, load_;  // by link
};

// How chunks may cross between nodes; TACCL's sketches say such things with relays.
struct CrossingRules {
  // A chunk crosses into every node a single time and is spread there: that it would arrive first is not worth a slow
  // link's time twice.
  bool once = false;
  // Only so many devices of a node, evenly spread, send to and receive from their like in other nodes; 0: all do. Fewer
  // connections keep the order of the schedule where many would share the link.
  std::int64_t gateways = 0;
};

// Brings chunk i from rank sources[i] to all other ranks. In the order of their starts. There are fewer messages than
// that takes where the rules leave no way to a rank.
std::vector<ScheduledMessage> schedule_to_all(const Topology& topology, const std::vector<std::int32_t>& sources,
                                              double chunk_bytes, const CrossingRules& rules = {});

// Brings chunk (s N + d) `chunks` + k from rank s to rank d, over ranks that pass it on where that is faster: ways are
// chosen so that the busiest link has little to carry (a multi-commodity flow by repeated shortest ways), then timed.
std::vector<ScheduledMessage> schedule_all_to_all(const Topology& topology, std::int64_t chunks, double chunk_bytes);

// The same where the ranks that every chunk visits are given; chunks without a way stay where they are.
std::vector<ScheduledMessage> schedule_ways(const Topology& topology,
                                            const std::vector<std::vector<std::int32_t>>& ways, double chunk_bytes);

}  // namespace weft
