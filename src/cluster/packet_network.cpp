#include "cluster/packet_network.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "cluster/directed_links.hpp"

namespace weft {
namespace {

constexpr std::int64_t kSmallest = 64;  // bytes of a packet without data

// Returns a number in 0..1 for every pair of devices, independent of the other connections and evenly spread over all
// pairs and over those of one device. (The golden ratio for two dimensions: inverse powers of the root of x^3 = x + 1.)
double even_part(Rank src, Rank dst) {
  constexpr double kFirst = 0.7548776662466927, kSecond = 0.5698402909980532;
  return std::fmod(0.5 + kFirst * static_cast<double>(src.index()) + kSecond * static_cast<double>(dst.index()), 1.0);
}

Nanos rounded(double nanos) {
  return {std::llround(nanos)};
}

}  // namespace

PacketNetwork::PacketNetwork(const Cluster& cluster, const Options& options) : cluster_(cluster), options_(options) {
  WEFT_CHECK(options.slowdown > 0 && options.packet.value > 0 && options.window >= options.packet);
  for (const weft::Link& link : cluster.links()) {
    const double rate = link.bandwidth.bytes_per_second * 1e-9 / options.slowdown;
    links_.insert(links_.end(), 2, {rate, rounded(static_cast<double>(link.burst.value) / rate), {}, {}});
  }
  busy_until_.resize(cluster.device_count());
}

std::int32_t PacketNetwork::open_connection(Rank src, Rank dst) {
  const Way there = directed_links(cluster_, src, dst), back = directed_links(cluster_, dst, src);
  Connection connection;
  connection.way = there.links;
  connection.back = back.links;
  connection.src = src;
  connection.dst = dst;
  connection.latency = rounded(static_cast<double>(there.latency.value) * options_.slowdown);
  connection.window =
      std::llround(static_cast<double>(options_.window.value) * (1 - options_.window_spread * even_part(src, dst)));
  connections_.push_back(std::move(connection));
  return static_cast<std::int32_t>(connections_.size() - 1);
}

std::int32_t PacketNetwork::new_message(std::int32_t connection, std::int64_t bytes) {
  Connection& its_connection = connections_[connection];
  its_connection.started += bytes;
  messages_.push_back({connection, bytes, bytes, bytes, its_connection.started, {}});
  return static_cast<std::int32_t>(messages_.size() - 1);
}

std::int32_t PacketNetwork::start(std::int32_t connection, Bytes bytes, Nanos now, Nanos landing) {
  advance(now);
  const std::int32_t id = new_message(connection, bytes.value);
  messages_.back().landing = landing;
  connections_[connection].unsent.push_back(id);
  connections_[connection].own.push_back(id);
  send_what_fits(connection, now);
  return id;
}

std::int32_t PacketNetwork::start_word(std::int32_t connection, Nanos now) {
  advance(now);
  const std::int32_t id = new_message(connection, 0);
  packets_.push({now, sequence_++, Kind::word, 0, connection, id, kSmallest});
  return id;
}

void PacketNetwork::send_what_fits(std::int32_t connection_id, Nanos now) {
  Connection& connection = connections_[connection_id];
  while (!connection.unsent.empty()) {
    Message& message = messages_[connection.unsent.front()];
    const bool small = message.total <= options_.small.value;
    if (!small && connection.at_source >= options_.at_source) break;
    const std::int64_t bytes = std::min(message.unsent, options_.packet.value);
    if (connection.under_way > 0 &&
        connection.under_way + bytes > (small ? options_.window_of_small.value : connection.window))
      break;
    connection.under_way += bytes;
    ++connection.at_source;
    connection.sent += bytes;
    const Nanos leaves =
        work(connection.src, now, handling(bytes, options_.senders_share, message.unsent == message.total));
    message.unsent -= bytes;
    packets_.push({leaves, sequence_++, Kind::data, 0, connection_id, connection.unsent.front(), bytes});
    if (message.unsent == 0) connection.unsent.pop_front();
  }
  take_over(connection, now);
}

void PacketNetwork::take_over(Connection& connection, Nanos now) {
  while (!connection.own.empty()) {
    const std::int32_t id = connection.own.front();
    if (messages_[id].end - connection.sent > options_.spare.value) return;
    taken_over_.push_back({id, now});
    connection.own.pop_front();
  }
}

// If the burst does not cover the backlog, the link keeps the packet until it does.
Nanos PacketNetwork::passes(Link& link, Nanos arrives, std::int64_t bytes) const {
  link.due = std::max(link.due, arrives) + rounded(static_cast<double>(bytes) / link.rate);
  link.last = std::max({arrives, link.last, link.due - link.saved});
  return link.last;
}

Nanos PacketNetwork::work(Rank device, Nanos now, Nanos time) {
  Nanos& busy_until = busy_until_[device.index()];
  busy_until = std::max(busy_until, now) + time;
  return busy_until;
}

// Returns the time that a device works on a packet and, at the first or last packet, on its message.
Nanos PacketNetwork::handling(std::int64_t bytes, double share, bool with_message) const {
  const double rate = options_.host_rate.bytes_per_second;
  const Nanos of_bytes = rate > 0 ? nanos_from_seconds(2 * share * static_cast<double>(bytes) / rate) : Nanos{0};
  return with_message ? of_bytes + Nanos{options_.per_message.value / 2} : of_bytes;
}

void PacketNetwork::move(Packet packet) {
  Connection& connection = connections_[packet.connection];
  if (packet.kind == Kind::data && packet.hop == 1) {
    --connection.at_source;
    send_what_fits(packet.connection, packet.time);
  }
  const auto& way = packet.kind == Kind::acknowledgement ? connection.back : connection.way;
  if (packet.hop < std::ssize(way)) {
    Link& link = links_[way[packet.hop]];
    const bool data = packet.kind == Kind::data;
    packet.time = passes(link, packet.time, data ? std::max(packet.bytes, kSmallest) : kSmallest);
    packet.sequence = sequence_++;
    ++packet.hop;
    packets_.push(packet);
    return;
  }
  if (packet.kind == Kind::acknowledgement) {
    connection.under_way -= packet.bytes;
    connection.window = std::min(options_.window.value, connection.window + packet.bytes / 2);
    return send_what_fits(packet.connection, packet.time);
  }
  if (packet.kind == Kind::data) {
    packets_.push(
        {packet.time, sequence_++, Kind::acknowledgement, 0, packet.connection, packet.message, packet.bytes});
    Message& message = messages_[packet.message];
    message.missing -= packet.bytes;
    const Nanos landing{message.total > 0 ? message.landing.value * packet.bytes / message.total : 0};
    packet.time = work(connection.dst, packet.time,
                       handling(packet.bytes, 1 - options_.senders_share, message.missing == 0) + landing);
    if (message.missing > 0) return;
  }
  arrived_.push_back({packet.message, packet.time + connection.latency});
}

std::optional<Nanos> PacketNetwork::next_event() const {
  if (packets_.empty()) return std::nullopt;
  return packets_.top().time;
}

void PacketNetwork::advance(Nanos now) {
  while (!packets_.empty() && packets_.top().time <= now) {
    const Packet packet = packets_.top();
    packets_.pop();
    move(packet);
  }
}

}  // namespace weft
