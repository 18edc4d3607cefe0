#include "cluster/flow_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace weft {

FlowNetwork::FlowNetwork(const Cluster& cluster, double slowdown) : cluster_(cluster), slowdown_(slowdown) {
  WEFT_CHECK(slowdown > 0);
  // Directed link 2 i leaves the device, 2 i + 1 enters it; of a half-duplex link only the first is used.
  for (const Link& link : cluster.links()) {
    const double rate = link.bandwidth.bytes_per_second * 1e-9 / slowdown;
    capacity_.insert(capacity_.end(), 2, rate);
  }
  room_.resize(capacity_.size());
  users_.resize(capacity_.size());
}

const FlowNetwork::Way& FlowNetwork::way(Rank src, Rank dst) {
  const auto [entry, is_new] = ways_.try_emplace({src, dst});
  Way& way = entry->second;
  if (!is_new) return way;
  const LevelId fabric = cluster_.common_fabric(src, dst);
  Nanos latency;
  for (const LinkId link : cluster_.path(fabric, src)) {
    way.links.push_back(2 * link.value);
    latency += cluster_.links()[link.index()].latency;
  }
  way.latency = {static_cast<std::int64_t>(std::llround(static_cast<double>(latency.value) * slowdown_))};
  for (const LinkId link : cluster_.path(fabric, dst)) {
    const bool half = cluster_.links()[link.index()].duplex == Duplex::half;
    const std::int32_t entering = 2 * link.value + (half ? 0 : 1);
    // Two devices behind one half-duplex link cross it once.
    if (std::find(way.links.begin(), way.links.end(), entering) == way.links.end()) way.links.push_back(entering);
  }
  way.best_rate = std::numeric_limits<double>::infinity();
  for (const std::int32_t link : way.links) {
    way.best_rate = std::min(way.best_rate, capacity_[static_cast<std::size_t>(link)]);
  }
  return way;
}

std::int32_t FlowNetwork::start(Rank src, Rank dst, Bytes bytes, Nanos now, Nanos spent) {
  advance(now);
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t id = unused_.back();
  unused_.pop_back();
  Flow& flow = flows_[static_cast<std::size_t>(id)];
  flow.way = &way(src, dst);
  flow.state = State::latent;
  flow.left = static_cast<double>(bytes.value);
  flow.rate = 0;
  flow.event = now_ + std::max(Nanos{0}, flow.way->latency - spent);
  active_.push_back(id);
  return id;
}

std::optional<Nanos> FlowNetwork::ended(std::int32_t id, Nanos now) {
  Flow& flow = flows_[static_cast<std::size_t>(id)];
  WEFT_CHECK(flow.state != State::unused);
  if (flow.state != State::done) advance(now);
  if (flow.state != State::done) return std::nullopt;
  flow.state = State::unused;
  unused_.push_back(id);
  return flow.event;
}

Nanos FlowNetwork::expected_end(std::int32_t id) const {
  const Flow& flow = flows_[static_cast<std::size_t>(id)];
  if (flow.state != State::latent) return flow.event;
  return flow.event + Nanos{static_cast<std::int64_t>(std::ceil(flow.left / flow.way->best_rate))};
}

std::optional<Nanos> FlowNetwork::next_event() const {
  std::optional<Nanos> next;
  for (const std::int32_t id : active_) {
    const Nanos event = flows_[static_cast<std::size_t>(id)].event;
    if (!next || event < *next) next = event;
  }
  return next;
}

// Through all events up to `now`, each at its own time.
void FlowNetwork::advance(Nanos now) {
  for (;;) {
    const std::optional<Nanos> next = next_event();
    const Nanos until = next && *next <= now ? *next : std::max(now_, now);
    const auto passed = static_cast<double>((until - now_).value);
    bool changed = false;
    for (const std::int32_t id : active_) {
      Flow& flow = flows_[static_cast<std::size_t>(id)];
      if (flow.state == State::moving) flow.left -= flow.rate * passed;
      if (flow.event > until) continue;
      const bool moves = flow.state == State::latent && flow.left > 0;
      flow.state = moves ? State::moving : State::done;
      changed = true;
    }
    now_ = until;
    if (!changed) return;
    std::erase_if(active_, [&](std::int32_t id) { return flows_[static_cast<std::size_t>(id)].state == State::done; });
    set_rates();
  }
}

// All rates rise together; a flow stops rising where it meets a full link.
void FlowNetwork::set_rates() {
  rising_.clear();
  for (const std::int32_t id : active_) {
    Flow& flow = flows_[static_cast<std::size_t>(id)];
    if (flow.state != State::moving) continue;
    rising_.push_back(id);
    for (const std::int32_t link : flow.way->links) {
      room_[static_cast<std::size_t>(link)] = capacity_[static_cast<std::size_t>(link)];
      users_[static_cast<std::size_t>(link)] = 0;
    }
  }
  for (const std::int32_t id : rising_) {
    for (const std::int32_t link : flows_[static_cast<std::size_t>(id)].way->links)
      ++users_[static_cast<std::size_t>(link)];
  }
  while (!rising_.empty()) {
    double level = std::numeric_limits<double>::infinity();
    for (const std::int32_t id : rising_) {
      for (const std::int32_t link : flows_[static_cast<std::size_t>(id)].way->links) {
        const auto l = static_cast<std::size_t>(link);
        level = std::min(level, room_[l] / users_[l]);
      }
    }
    const auto is_full = [&](std::int32_t id) {
      const auto& links = flows_[static_cast<std::size_t>(id)].way->links;
      return std::any_of(links.begin(), links.end(), [&](std::int32_t link) {
        const auto l = static_cast<std::size_t>(link);
        return room_[l] / users_[l] <= level * (1 + 1e-12);
      });
    };
    const auto still_rising = std::stable_partition(rising_.begin(), rising_.end(), is_full);
    for (auto it = rising_.begin(); it != still_rising; ++it) {
      Flow& flow = flows_[static_cast<std::size_t>(*it)];
      const bool moved_before = flow.rate > 0;
      const Nanos end = now_ + Nanos{static_cast<std::int64_t>(std::ceil(std::max(0.0, flow.left) / level))};
      if (moved_before && end < flow.event) sooner_.push_back(*it);
      flow.rate = level;
      flow.event = end;
      for (const std::int32_t link : flow.way->links) {
        room_[static_cast<std::size_t>(link)] -= level;
        --users_[static_cast<std::size_t>(link)];
      }
    }
    rising_.erase(rising_.begin(), still_rising);
  }
}

}  // namespace weft
