// Communication by collective, group and size: its time, how much of it is exposed and why, what could have hidden it,
// and its bandwidth. Each rank has a table; tables of ranks add up.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "timeline/trace/communication_facts.hpp"
#include "timeline/trace/exposed_communication.hpp"
#include "timeline/trace/overlap_bound.hpp"

namespace weft {

struct ExposureKey {
  std::string collective, group;
  int size = -1;  // size_class
  friend auto operator<=>(const ExposureKey&, const ExposureKey&) = default;
};

struct ExposureRow {
  std::int64_t count = 0;
  std::int64_t ranks = 0;  // of the group; 0: unknown, or groups of several sizes
  Nanos time;              // of all of them, one after another
  Nanos exposed;           // adds up, over the rows, to the rank's exposed time
  std::array<Nanos, kExposedReasons> reasons{};
  Nanos possible;                       // of the exposed time: what the order of the streams lets hide
  std::map<std::string, Nanos> beside;  // by computation: how much of it
  // Of those whose size is known: bytes as nccl-tests count them, and the time since the last member had begun.
  std::int64_t sized = 0;
  double bytes = 0, bus_bytes = 0, moving_s = 0;
  double best_bus_bytes_per_s = 0;  // of one of them

  double algorithm_bytes_per_s() const { return moving_s > 0 ? bytes / moving_s : 0; }
  double bus_bytes_per_s() const { return moving_s > 0 ? bus_bytes / moving_s : 0; }
  void add(const ExposureRow& other);
};

using ExposureTable = std::map<ExposureKey, ExposureRow>;

struct ExposureInput {
  const DeviceTrace* trace = nullptr;
  const DeviceOrder* order = nullptr;
  const CommunicationTable* communication = nullptr;
  const ExposedCommunication* exposed = nullptr;
  const OverlapBound* bound = nullptr;
  const std::vector<PeerStart>* peers = nullptr;  // may be null
};

ExposureTable tabulate_exposure(const ExposureInput& input);
void add_table(ExposureTable& into, const ExposureTable& other);
// Rows with the most exposed time first; ties by key.
std::vector<const ExposureTable::value_type*> by_exposed_time(const ExposureTable& table);

}  // namespace weft
