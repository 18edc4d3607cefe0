#include "cluster/flow_network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "cluster/directed_links.hpp"
#include "cluster/topology_way.hpp"

namespace weft {
namespace {

Nanos time_to_move(double bytes, double rate) {
  return {static_cast<std::int64_t>(std::ceil(std::max(0.0, bytes) / rate))};
}

}  // namespace

FlowNetwork::FlowNetwork(const Cluster& cluster, double slowdown, double sharing_loss)
    : cluster_(cluster), slowdown_(slowdown), sharing_loss_(sharing_loss) {
  WEFT_CHECK(slowdown > 0);
  if (cluster.spec().topology) {
    for (const TopologyLink& link : (*cluster.spec().topology).links) {
      capacity_.push_back(link.bandwidth.bytes_per_second * 1e-9 / slowdown);
    }
  } else {
    for (const Link& link : cluster.links()) {
      const double rate = link.bandwidth.bytes_per_second * 1e-9 / slowdown;
      capacity_.insert(capacity_.end(), 2, rate);
    }
  }
  room_.resize(capacity_.size());
  users_.resize(capacity_.size());
}

std::int32_t FlowNetwork::open_connection(Rank src, Rank dst) {
  const Way way = cluster_.spec().topology ? wiring_way(cluster_, src, dst) : directed_links(cluster_, src, dst);
  Connection connection;
  for (std::size_t i = 0; i < way.links.size(); ++i) {
    connection.links.push_back({way.links[i], way.shares.empty() ? 1 : way.shares[i]});
  }
  connection.latency = {static_cast<std::int64_t>(std::llround(static_cast<double>(way.latency.value) * slowdown_))};
  connection.best_rate = std::numeric_limits<double>::infinity();
  for (const auto& [link, share] : connection.links) {
    connection.best_rate = std::min(connection.best_rate, capacity_[link] / share);
  }
  connections_.push_back(std::move(connection));
  return static_cast<std::int32_t>(connections_.size() - 1);
}

std::int32_t FlowNetwork::start(std::int32_t connection_id, Bytes bytes, Nanos now) {
  advance(now);
  if (unused_.empty()) {
    unused_.push_back(static_cast<std::int32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::int32_t id = unused_.back();
  unused_.pop_back();
  Connection& connection = connections_[connection_id];
  flow(id) = {State::latent, connection_id, static_cast<double>(bytes.value), 0, now_ + connection.latency};
  connection.flows.push_back(id);
  latent_.push_back(id);
  std::push_heap(latent_.begin(), latent_.end(), Later{flows_});
  return id;
}

std::optional<Nanos> FlowNetwork::ended(std::int32_t id, Nanos now) {
  WEFT_CHECK(flow(id).state != State::unused);
  if (flow(id).state != State::done) advance(now);
  if (flow(id).state != State::done) return std::nullopt;
  flow(id).state = State::unused;
  unused_.push_back(id);
  return flow(id).event;
}

std::optional<Nanos> FlowNetwork::next_event() const {
  return arrived_.empty() ? next_change() : now_;
}

std::optional<Nanos> FlowNetwork::next_change() const {
  std::optional<Nanos> next;
  if (!latent_.empty()) next = flow(latent_.front()).event;
  for (const std::int32_t id : moving_) {
    if (!next || flow(id).event < *next) next = flow(id).event;
  }
  return next;
}

void FlowNetwork::advance(Nanos now) {
  for (;;) {
    const std::optional<Nanos> next = next_change();
    const bool due = next && *next <= now;
    const Nanos until = due ? *next : std::max(now_, now);
    const auto passed = static_cast<double>((until - now_).value);
    for (const std::int32_t id : moving_) flow(id).left -= flow(id).rate * passed;
    now_ = until;
    if (!due) return;
    for (const std::int32_t id : moving_) {
      if (flow(id).event <= until) ending_.push_back(id);
    }
    std::erase_if(moving_, [&](std::int32_t id) { return flow(id).event <= until; });
    for (const std::int32_t id : ending_) {
      end(id, flow(id).event);
      begin_next(connection_of(flow(id)), until);
    }
    ending_.clear();
    while (!latent_.empty() && flow(latent_.front()).event <= until) {
      std::pop_heap(latent_.begin(), latent_.end(), Later{flows_});
      Flow& waited = flow(latent_.back());
      latent_.pop_back();
      waited.state = State::queued;
      begin_next(connection_of(waited), until);
    }
    set_rates();
  }
}

// Ends the flow, which must be the first of its connection.
void FlowNetwork::end(std::int32_t id, Nanos time) {
  flow(id).state = State::done;
  flow(id).event = time;
  auto& line = connection_of(flow(id)).flows;
  line.erase(line.begin());
  arrived_.push_back(id);
}

// Lets the first flow of the connection move if its latency is over. Flows without bytes end at once.
void FlowNetwork::begin_next(Connection& its_connection, Nanos time) {
  while (!its_connection.flows.empty()) {
    const std::int32_t id = its_connection.flows.front();
    if (flow(id).state != State::queued) return;
    if (flow(id).left > 0) {
      flow(id).state = State::moving;
      moving_.push_back(id);
      return;
    }
    end(id, time);
  }
}

// Max-min fairness: all rates rise together, and a flow stops rising when one of its links is full.
void FlowNetwork::set_rates() {
  rising_.clear();
  for (const std::int32_t id : moving_) {
    rising_.push_back(id);
    for (const auto& [link, share] : connection_of(flow(id)).links) users_[link] = 0;
  }
  for (const std::int32_t id : rising_) {
    for (const auto& [link, share] : connection_of(flow(id)).links) users_[link] += share;
  }
  for (const std::int32_t id : rising_) {
    for (const auto& [link, share] : connection_of(flow(id)).links) {
      const std::size_t l = link;
      room_[l] = capacity_[l] * std::clamp(1 - sharing_loss_ * (users_[l] - 1), 0.5, 1.0);
    }
  }
  while (!rising_.empty()) {
    double level = std::numeric_limits<double>::infinity();
    for (const std::int32_t id : rising_) {
      for (const auto& [link, share] : connection_of(flow(id)).links) {
        const std::size_t l = link;
        level = std::min(level, room_[l] / users_[l]);
      }
    }
    // Keeps the order without std::stable_partition, which allocates.
    stopping_.clear();
    std::erase_if(rising_, [&](std::int32_t id) {
      const bool stops = meets_full_link(flow(id), level);
      if (stops) stopping_.push_back(id);
      return stops;
    });
    for (const std::int32_t id : stopping_) {
      Flow& fixed = flow(id);
      fixed.rate = level;
      fixed.event = now_ + time_to_move(fixed.left, level);
      for (const auto& [link, share] : connection_of(fixed).links) {
        room_[link] -= level * share;
        users_[link] -= share;
      }
    }
  }
}

bool FlowNetwork::meets_full_link(const Flow& rising, double level) const {
  const auto& links = connection_of(rising).links;
  return std::any_of(links.begin(), links.end(), [&](const LinkShare& crossed) {
    const std::size_t l = crossed.link;
    return room_[l] / users_[l] <= level * (1 + 1e-12);
  });
}

}  // namespace weft
