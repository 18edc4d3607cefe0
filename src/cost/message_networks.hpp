// The two ways in which a simulated program's messages cross links, with one interface for cost/program_time.cpp.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/flow_network.hpp"
#include "cluster/packet_network.hpp"
#include "cost/program_time.hpp"

namespace weft {

// Messages as fluids that share links at once. A message sets out when both ends have posted it.
class Flows {
 public:
  Flows(const Cluster& cluster, const ProgramTimeOptions& options)
      : network_(cluster, options.slowdown, options.sharing_loss) {}
  static constexpr bool kWaitsForRequest = false, kSystemTakesOver = false;
  static constexpr bool kLandsInPortions = false;
  static bool asks_for(std::int64_t) { return false; }
  std::int32_t open_connection(Rank src, Rank dst) { return network_.open_connection(src, dst); }
  std::int32_t start(std::int32_t connection, Bytes bytes, Nanos now, Nanos) {
    return network_.start(connection, bytes, now);
  }
  std::int32_t ask(std::int32_t, Nanos) { return -1; }
  // A device does one piece of work after the other.
  Nanos work(Rank device, Nanos now, Nanos time) {
    if (busy_until_.size() <= device.index()) busy_until_.resize(device.index() + 1);
    Nanos& busy_until = busy_until_[device.index()];
    return busy_until = std::max(busy_until, now) + time;
  }
  std::optional<Nanos> next_event() const { return network_.next_event(); }
  template <class OnArrival, class OnTakenOver>
  void advance(Nanos now, const OnArrival& on_arrival, const OnTakenOver&) {
    network_.advance(now);
    for (const std::int32_t flow : network_.arrived()) on_arrival(flow, *network_.ended(flow, now));
    network_.clear_arrived();
  }

 private:
  FlowNetwork network_;
  std::vector<Nanos> busy_until_;
};

// Messages as TCP's packets, as comm/tcp sends them.
class Packets {
 public:
  Packets(const Cluster& cluster, const ProgramTimeOptions& options)
      : tcp_(*options.tcp),
        network_(cluster, {.slowdown = options.slowdown,
                           .window = tcp_.window,
                           .small = tcp_.unasked + tcp_.header,
                           .window_of_small = tcp_.window_of_small,
                           .packet = tcp_.packet,
                           .spare = tcp_.spare,
                           .host_rate = tcp_.host_rate,
                           .per_message = tcp_.per_message}) {}
  static constexpr bool kWaitsForRequest = true;  // a large message sets out when it has been asked for
  static constexpr bool kSystemTakesOver = true;  // for the sender a message has ended before it arrives
  static constexpr bool kLandsInPortions = true;  // reductions begin before a message has come whole
  bool asks_for(std::int64_t bytes) const { return bytes > tcp_.unasked.value; }
  // All channels of two ranks share one connection.
  std::int32_t open_connection(Rank src, Rank dst) {
    const auto [entry, is_new] = connections_.try_emplace({src, dst});
    if (is_new) entry->second = network_.open_connection(src, dst);
    return entry->second;
  }
  std::int32_t start(std::int32_t connection, Bytes bytes, Nanos now, Nanos landing) {
    return network_.start(connection, bytes + tcp_.header, now, landing);
  }
  std::int32_t ask(std::int32_t connection, Nanos now) { return network_.start_word(connection, now); }
  Nanos work(Rank device, Nanos now, Nanos time) { return network_.work(device, now, time); }
  std::optional<Nanos> next_event() const { return network_.next_event(); }
  template <class OnArrival, class OnTakenOver>
  void advance(Nanos now, const OnArrival& on_arrival, const OnTakenOver& on_taken_over) {
    network_.advance(now);
    for (const auto& [message, time] : network_.arrived()) on_arrival(message, time);
    for (const auto& [message, time] : network_.taken_over()) on_taken_over(message, time);
    network_.clear_arrived();
  }

 private:
  TcpTraffic tcp_;
  PacketNetwork network_;
  std::map<std::pair<Rank, Rank>, std::int32_t> connections_;
};

}  // namespace weft
