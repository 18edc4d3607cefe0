#include "collective/synthesis/list_schedule.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "cluster/topology_way.hpp"

namespace weft {
namespace {

constexpr double kNeverArrives = std::numeric_limits<double>::infinity();

bool passes_devices(const Topology& topology, const Way& way, std::int32_t from, std::int32_t to) {
  return std::ranges::any_of(way.links, [&](std::int32_t link) {
    for (const std::int32_t end : {topology.links[link].from, topology.links[link].to}) {
      if (end != from && end != to && topology.vertices[end].kind == VertexKind::device) return true;
    }
    return false;
  });
}

// Where a rank sits.
struct Seat {
  std::int64_t node = -1;
  std::int64_t gateway = -1;  // its number among those of the node; -1: it is none
};

std::vector<Seat> seats_of(const Topology& topology, std::int64_t gateways) {
  std::map<std::int64_t, std::vector<std::size_t>> nodes;
  std::vector<Seat> seats;
  for (const std::int32_t device : topology.devices()) {
    nodes[topology.vertices[device].node].push_back(seats.size());
    seats.push_back({topology.vertices[device].node, -1});
  }
  for (const auto& [node, ranks] : nodes) {
    const std::int64_t size = std::ssize(ranks), count = std::min(gateways, size);
    for (std::int64_t i = 0; i < count; ++i) seats[ranks[i * size / count]].gateway = i;
  }
  return seats;
}

}  // namespace

LinkCalendar::LinkCalendar(const Topology& topology)
    : free_(topology.links.size(), 0), load_(topology.links.size(), 0) {
  const std::vector<std::int32_t> devices = topology.devices();
  ranks_ = static_cast<std::int32_t>(devices.size());
  ways_.resize(devices.size() * devices.size());
  for (std::int32_t from = 0; from < ranks_; ++from) {
    for (std::int32_t to = 0; to < ranks_; ++to) {
      if (from == to) continue;
      const Way found = topology_way(topology, Rank{from}, Rank{to});
      if (passes_devices(topology, found, devices[from], devices[to])) continue;
      RankWay& own = ways_[from * ranks_ + to];
      own.latency = seconds(found.latency);
      own.links = found.links;
      for (std::size_t i = 0; i < found.links.size(); ++i) {
        own.seconds_per_byte.push_back(found.shares[i] / topology.links[found.links[i]].bandwidth.bytes_per_second);
      }
    }
  }
}

double LinkCalendar::occupied(std::int32_t from, std::int32_t to, double bytes) const {
  const RankWay& own = way(from, to);
  return bytes * *std::ranges::max_element(own.seconds_per_byte);
}

double LinkCalendar::alone(std::int32_t from, std::int32_t to, double bytes) const {
  return way(from, to).latency + occupied(from, to, bytes);
}

double LinkCalendar::free_at(const RankWay& own) const {
  double free = 0;
  for (const std::int32_t link : own.links) free = std::max(free, free_[link]);
  return free;
}

double LinkCalendar::arrival(std::int32_t from, std::int32_t to, double bytes, double ready) const {
  return std::max(ready, free_at(way(from, to))) + alone(from, to, bytes);
}

ScheduledMessage LinkCalendar::send(std::int32_t from, std::int32_t to, double bytes, double ready) {
  const RankWay& own = way(from, to);
  ScheduledMessage message{from, to, 0, std::max(ready, free_at(own)), 0};
  for (std::size_t i = 0; i < own.links.size(); ++i) {
    free_[own.links[i]] = message.start + bytes * own.seconds_per_byte[i];
  }
  message.arrival = message.start + alone(from, to, bytes);
  return message;
}

void LinkCalendar::add_load(std::int32_t from, std::int32_t to, double bytes) {
  const RankWay& own = way(from, to);
  for (std::size_t i = 0; i < own.links.size(); ++i) load_[own.links[i]] += bytes * own.seconds_per_byte[i];
}

double LinkCalendar::busiest(std::int32_t from, std::int32_t to) const {
  double most = 0;
  for (const std::int32_t link : way(from, to).links) most = std::max(most, load_[link]);
  return most;
}

std::vector<ScheduledMessage> schedule_to_all(const Topology& topology, const std::vector<std::int32_t>& sources,
                                              double chunk_bytes, const CrossingRules& rules) {
  LinkCalendar calendar(topology);
  const std::int32_t ranks = calendar.ranks();
  const auto chunks = static_cast<std::int64_t>(sources.size());
  std::vector<std::vector<double>> has(sources.size(), std::vector<double>(ranks, kNeverArrives));
  for (std::int64_t c = 0; c < chunks; ++c) has[c][sources[c]] = 0;
  const std::vector<Seat> seats = seats_of(topology, rules.gateways);
  std::set<std::pair<std::int64_t, std::int64_t>> entered;  // chunk, node
  for (std::int64_t c = 0; c < chunks; ++c) entered.insert({c, seats[sources[c]].node});
  const auto is_forbidden = [&](std::int64_t chunk, std::int32_t from, std::int32_t to) {
    if (seats[from].node == seats[to].node) return false;
    const bool between_gateways = seats[from].gateway >= 0 && seats[from].gateway == seats[to].gateway;
    if (rules.gateways > 0 && !between_gateways) return true;
    return rules.once && entered.contains({chunk, seats[to].node});
  };

  // Candidates wait in a queue by the arrival that they once had. Links only get busier, so an arrival only gets later:
  // whoever is first after a fresh look is first of all.
  struct Candidate {
    double arrival = 0;
    std::int64_t holders = 0, order = 0;  // rare chunks first, then as they came
    std::int64_t chunk = 0;
    std::int32_t from = 0, to = 0;
    bool operator<(const Candidate& other) const {
      return std::tie(arrival, holders, order) > std::tie(other.arrival, other.holders, other.order);
    }
  };
  std::priority_queue<Candidate> queue;
  std::vector<std::int64_t> holders(sources.size(), 1);
  std::int64_t order = 0;
  const auto offer = [&](std::int64_t chunk, std::int32_t from) {
    for (std::int32_t to = 0; to < ranks; ++to) {
      if (to == from || has[chunk][to] != kNeverArrives || !calendar.joined(from, to)) continue;
      if (is_forbidden(chunk, from, to)) continue;
      queue.push({calendar.arrival(from, to, chunk_bytes, has[chunk][from]), holders[chunk], order++, chunk, from, to});
    }
  };
  for (std::int64_t c = 0; c < chunks; ++c) offer(c, sources[c]);
  std::vector<ScheduledMessage> messages;
  while (!queue.empty()) {
    Candidate next = queue.top();
    queue.pop();
    if (has[next.chunk][next.to] != kNeverArrives || is_forbidden(next.chunk, next.from, next.to)) continue;
    const double arrival = calendar.arrival(next.from, next.to, chunk_bytes, has[next.chunk][next.from]);
    if (arrival > next.arrival * (1 + 1e-12)) {
      next.arrival = arrival;
      next.holders = holders[next.chunk];
      queue.push(next);
      continue;
    }
    ScheduledMessage message = calendar.send(next.from, next.to, chunk_bytes, has[next.chunk][next.from]);
    message.chunk = next.chunk;
    has[next.chunk][next.to] = message.arrival;
    ++holders[next.chunk];
    entered.insert({next.chunk, seats[next.to].node});
    messages.push_back(message);
    offer(next.chunk, next.to);
  }
  std::ranges::stable_sort(messages, {}, &ScheduledMessage::start);
  return messages;
}

namespace {

constexpr int kRoundsOfRerouting = 3;

// The ranks that a chunk visits, from its source to its destination: the way on which the busiest link, with this
// chunk, takes the least, where every hop also counts what it takes by itself.
std::vector<std::int32_t> least_loaded_way(const LinkCalendar& calendar, std::int32_t from, std::int32_t to,
                                           double bytes) {
  const std::int32_t ranks = calendar.ranks();
  std::vector<double> cost(ranks, kNeverArrives);
  std::vector<std::int32_t> before(ranks, -1);
  std::vector<bool> settled(ranks, false);
  cost[from] = 0;
  for (;;) {
    std::int32_t at = -1;
    for (std::int32_t r = 0; r < ranks; ++r) {
      if (!settled[r] && cost[r] != kNeverArrives && (at < 0 || cost[r] < cost[at])) at = r;
    }
    if (at < 0 || at == to) break;
    settled[at] = true;
    for (std::int32_t next = 0; next < ranks; ++next) {
      if (next == at || settled[next] || !calendar.joined(at, next)) continue;
      const double own = cost[at] + calendar.alone(at, next, bytes) + calendar.busiest(at, next);
      if (own < cost[next]) {
        cost[next] = own;
        before[next] = at;
      }
    }
  }
  std::vector<std::int32_t> way{to};
  while (way.back() != from) way.push_back(before[way.back()]);
  std::ranges::reverse(way);
  return way;
}

void load_way(LinkCalendar& calendar, const std::vector<std::int32_t>& way, double bytes) {
  for (std::size_t i = 0; i + 1 < way.size(); ++i) calendar.add_load(way[i], way[i + 1], bytes);
}

std::vector<ScheduledMessage> time_ways(LinkCalendar& calendar, const std::vector<std::vector<std::int32_t>>& ways,
                                        double chunk_bytes) {
  struct Progress {
    std::size_t at = 0;
    double ready = 0;
  };
  std::vector<Progress> all(ways.size());
  // Chunks with the most hops left go first where they would arrive at the same time.
  using Waiting = std::tuple<double, std::int64_t, std::int64_t>;  // arrival, hops left (negative), chunk
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> queue;
  const auto arrival_of = [&](std::int64_t i) {
    return calendar.arrival(ways[i][all[i].at], ways[i][all[i].at + 1], chunk_bytes, all[i].ready);
  };
  const auto offer = [&](std::int64_t i) {
    if (all[i].at + 1 >= ways[i].size()) return;
    queue.emplace(arrival_of(i), static_cast<std::int64_t>(all[i].at) - std::ssize(ways[i]), i);
  };
  for (std::int64_t i = 0; i < std::ssize(all); ++i) offer(i);
  std::vector<ScheduledMessage> messages;
  while (!queue.empty()) {
    const auto [arrival, left, i] = queue.top();
    queue.pop();
    if (const double now = arrival_of(i); now > arrival * (1 + 1e-12)) {
      queue.emplace(now, left, i);
      continue;
    }
    Progress& chunk = all[i];
    ScheduledMessage message = calendar.send(ways[i][chunk.at], ways[i][chunk.at + 1], chunk_bytes, chunk.ready);
    message.chunk = i;
    chunk.ready = message.arrival;
    ++chunk.at;
    messages.push_back(message);
    offer(i);
  }
  std::ranges::stable_sort(messages, {}, &ScheduledMessage::start);
  return messages;
}

}  // namespace

std::vector<ScheduledMessage> schedule_all_to_all(const Topology& topology, std::int64_t chunks, double chunk_bytes) {
  LinkCalendar calendar(topology);
  const std::int32_t ranks = calendar.ranks();
  std::vector<std::vector<std::int32_t>> ways(static_cast<std::size_t>(ranks * ranks * chunks));
  for (int round = 0; round < kRoundsOfRerouting; ++round) {
    // By distance, so that no rank's chunks are routed before all others'.
    for (std::int32_t distance = 1; distance < ranks; ++distance) {
      for (std::int32_t from = 0; from < ranks; ++from) {
        const std::int32_t to = (from + distance) % ranks;
        for (std::int64_t k = 0; k < chunks; ++k) {
          std::vector<std::int32_t>& way = ways[(from * ranks + to) * chunks + k];
          if (!way.empty()) load_way(calendar, way, -chunk_bytes);
          way = least_loaded_way(calendar, from, to, chunk_bytes);
          load_way(calendar, way, chunk_bytes);
        }
      }
    }
  }
  return time_ways(calendar, ways, chunk_bytes);
}

std::vector<ScheduledMessage> schedule_ways(const Topology& topology,
                                            const std::vector<std::vector<std::int32_t>>& ways, double chunk_bytes) {
  LinkCalendar calendar(topology);
  return time_ways(calendar, ways, chunk_bytes);
}

}  // namespace weft
