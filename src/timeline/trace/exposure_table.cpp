#include "timeline/trace/exposure_table.hpp"

#include <algorithm>

namespace weft {
namespace {

ExposureKey key_of(const CommunicationTable& table, const TracedCommunication& what) {
  return {table.labels[what.label], table.groups[what.group].label, size_class(what.bytes)};
}

class TableFiller {
 public:
  explicit TableFiller(const ExposureInput& input) : input_(input), rows_(input.trace->device.size(), nullptr) {}

  ExposureTable fill() && {
    for (const std::int32_t i : input_.order->activities) {
      if (input_.trace->device[i].kind == KernelKind::communication) count(i);
    }
    for (const DeviceExposure& stretch : input_.exposed->stretches) {
      ExposureRow& row = *rows_[stretch.activity];
      const Nanos time = stretch.end - stretch.begin;
      row.exposed += time;
      row.reasons[static_cast<std::size_t>(stretch.reason)] += time;
    }
    for (const Hideable& hideable : input_.bound->communications) {
      ExposureRow& row = *rows_[hideable.activity];
      row.possible += hideable.possible();
      for (const HidingPlace& place : hideable.nearest) {
        const std::int32_t name = input_.trace->device[place.computation].name;
        row.beside[input_.trace->names[name]] += place.time;
      }
    }
    return std::move(table_);
  }

 private:
  void count(std::int32_t i) {
    const std::size_t index = i;
    const DeviceActivity& activity = input_.trace->device[index];
    const TracedCommunication& what = input_.communication->of[index];
    const std::tuple facts{what.label, what.group, size_class(what.bytes)};
    ExposureRow*& row = by_facts_[facts];
    const std::int64_t ranks = input_.communication->groups[what.group].size;
    if (row == nullptr) {
      const auto [at, added] = table_.try_emplace(key_of(*input_.communication, what));
      row = &at->second;
      row->ranks = added || row->ranks == ranks ? ranks : 0;
    }
    rows_[index] = row;
    ++row->count;
    row->time += activity.duration();
    if (what.bytes < 0) return;
    Nanos begin = activity.start;
    if (input_.peers != nullptr) {
      const auto found = std::lower_bound(input_.peers->begin(), input_.peers->end(), i,
                                          [](const PeerStart& peer, std::int32_t a) { return peer.activity < a; });
      if (found != input_.peers->end() && found->activity == i) begin = std::max(begin, found->start);
    }
    const double moving = seconds(activity.end - begin);
    if (!(moving > 0)) return;
    const auto bytes = static_cast<double>(what.bytes);
    ++row->sized;
    row->bytes += bytes;
    row->bus_bytes += bytes * bus_factor(what.op, ranks);
    row->moving_s += moving;
    row->best_bus_bytes_per_s = std::max(row->best_bus_bytes_per_s, bytes * bus_factor(what.op, ranks) / moving);
  }

  const ExposureInput& input_;
  ExposureTable table_;
  std::map<std::tuple<std::int32_t, std::int32_t, int>, ExposureRow*> by_facts_;
  std::vector<ExposureRow*> rows_;  // by activity
};

}  // namespace

void ExposureRow::add(const ExposureRow& other) {
  if (count > 0 && ranks != other.ranks) {
    ranks = 0;
  } else {
    ranks = other.ranks;
  }
  count += other.count;
  time += other.time;
  exposed += other.exposed;
  for (std::size_t i = 0; i < reasons.size(); ++i) reasons[i] += other.reasons[i];
  possible += other.possible;
  for (const auto& [name, t] : other.beside) beside[name] += t;
  sized += other.sized;
  bytes += other.bytes;
  bus_bytes += other.bus_bytes;
  moving_s += other.moving_s;
  best_bus_bytes_per_s = std::max(best_bus_bytes_per_s, other.best_bus_bytes_per_s);
}

ExposureTable tabulate_exposure(const ExposureInput& input) {
  return TableFiller(input).fill();
}

void add_table(ExposureTable& into, const ExposureTable& other) {
  for (const auto& [key, row] : other) into[key].add(row);
}

std::vector<const ExposureTable::value_type*> by_exposed_time(const ExposureTable& table) {
  std::vector<const ExposureTable::value_type*> rows;
  for (const auto& row : table) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto* a, const auto* b) { return a->second.exposed > b->second.exposed; });
  return rows;
}

}  // namespace weft
