// Messages over the links of a cluster as fluids: each waits out the latency of its way, then moves bytes at its
// max-min fair share of every link direction that it crosses. The same model paces real transfers (comm/local, where
// `now` is the clock) and predicts them (cost/program_time, where it is simulated).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/cluster.hpp"

namespace weft {

class FlowNetwork {
 public:
  // All links slower by `slowdown`, all latencies longer.
  explicit FlowNetwork(const Cluster& cluster, double slowdown = 1);

  // A message sets out at `now`, which never goes back. `spent` of its latency has passed already.
  std::int32_t start(Rank src, Rank dst, Bytes bytes, Nanos now, Nanos spent = {0});
  // When the last byte arrived, if it has by `now`; the flow is forgotten then.
  std::optional<Nanos> ended(std::int32_t flow, Nanos now);
  // When the flow will end, unless others come or go; one that has not set out yet is thought to be alone.
  Nanos expected_end(std::int32_t flow) const;
  // Flows whose end has come closer because others ended, since the last call. Who sleeps until then must be woken.
  const std::vector<std::int32_t>& sooner() const { return sooner_; }
  void clear_sooner() { sooner_.clear(); }
  // The next time at which something ends or begins to move, if anything is under way.
  std::optional<Nanos> next_event() const;

 private:
  enum class State : std::uint8_t { unused, latent, moving, done };
  struct Way {
    std::vector<std::int32_t> links;  // directed
    Nanos latency;
    double best_rate = 0;  // of a flow alone
  };
  struct Flow {
    State state = State::unused;
    const Way* way = nullptr;
    double left = 0;  // bytes
    double rate = 0;  // bytes per nanosecond
    Nanos event;      // latent: begins to move; moving: ends at this rate; done: ended
  };
  void advance(Nanos now);
  void set_rates();
  const Way& way(Rank src, Rank dst);

  const Cluster& cluster_;
  double slowdown_;
  std::map<std::pair<Rank, Rank>, Way> ways_;  // those that were used
  std::vector<double> capacity_;               // by directed link, bytes per nanosecond
  std::vector<Flow> flows_;
  std::vector<std::int32_t> active_;  // latent and moving, by age
  std::vector<std::int32_t> unused_;
  std::vector<std::int32_t> sooner_;
  Nanos now_;
  // Kept between calls so that the steady state allocates nothing.
  std::vector<double> room_;
  std::vector<std::int32_t> users_;
  std::vector<std::int32_t> rising_;
};

}  // namespace weft
