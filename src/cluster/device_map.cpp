#include "cluster/device_map.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

namespace weft {
namespace {

// How many consecutive devices of a node share links, or are joined, with each other and with nobody else of the node.
// 0: levels divide a node in more than one way, so that none of its devices may change places.
std::int64_t group_size(const ClusterSpec& spec) {
  std::optional<std::int64_t> size;
  for (const LevelSpec& level : spec.levels) {
    for (const std::int64_t together : {level.shared_by, level.part}) {
      if (together <= 1 || together >= spec.devices_per_node) continue;
      if (size && *size != together) return 0;
      size = together;
    }
  }
  if (!size) return spec.devices_per_node;
  return spec.devices_per_node % *size == 0 ? *size : 0;
}

// Symmetries of topologies with more devices take too long to find.
constexpr std::int64_t kMostSymmetricDevices = 32;

// What is told of a node apart from its number, and which nodes it shares links with.
using NodeFacts = std::tuple<std::vector<std::int64_t>, std::vector<std::tuple<std::string, double, std::int64_t>>,
                             std::vector<Device>>;

NodeFacts facts_of(const ClusterSpec& spec, std::int64_t node) {
  NodeFacts facts;
  auto& [shared, links, devices] = facts;
  if (spec.nodes_per_leaf > 0) shared.push_back(node / spec.nodes_per_leaf);
  const std::int64_t in_leaf = spec.nodes_per_leaf > 0 ? node % spec.nodes_per_leaf : node;
  for (const LevelSpec& level : spec.levels) {
    if (level.shared_by > spec.devices_per_node) shared.push_back(in_leaf / (level.shared_by / spec.devices_per_node));
  }
  for (const NodeOverride& change : spec.overrides) {
    if (change.node != node) continue;
    if (change.device) devices.push_back(*change.device);
    if (change.level.empty()) continue;
    links.emplace_back(change.level, change.bandwidth.value_or(Bandwidth{}).bytes_per_second,
                       change.latency.value_or(Nanos{-1}).value);
  }
  std::sort(links.begin(), links.end());
  return facts;
}

}  // namespace

DeviceKinds::DeviceKinds(const ClusterSpec& spec)
    : devices_(spec.nodes * spec.devices_per_node), per_node_(spec.devices_per_node), per_group_(group_size(spec)) {
  std::vector<NodeFacts> known;
  for (std::int64_t node = 0; node < spec.nodes; ++node) {
    NodeFacts facts = facts_of(spec, node);
    const auto found = std::find(known.begin(), known.end(), facts);
    node_kind_.push_back(found - known.begin());
    if (found == known.end()) known.push_back(std::move(facts));
  }
  wired_ = static_cast<bool>(spec.topology);
  if (wired_ && devices_ <= kMostSymmetricDevices) symmetry_ = std::make_shared<DeviceSymmetry>(spec);
}

DeviceKinds::Taken DeviceKinds::nothing_taken() const {
  const std::int64_t size = std::max<std::int64_t>(per_group_, 1);
  return {std::vector<bool>(static_cast<std::size_t>(devices_)),
          std::vector<std::int64_t>(static_cast<std::size_t>(devices_ / size)),
          std::vector<std::int64_t>(static_cast<std::size_t>(devices_ / per_node_))};
}

void DeviceKinds::take(Taken& taken, std::int64_t device, bool is_taken) const {
  const std::int64_t change = is_taken ? 1 : -1;
  taken.devices[device] = is_taken;
  taken.of_node[device / per_node_] += change;
  if (per_group_ > 0) taken.of_group[device / per_group_] += change;
}

// Nodes that are free as a whole, and in a node groups that are, are equal; in a group all devices are.
bool DeviceKinds::has_lower_equal(const Taken& taken, std::int64_t device) const {
  const std::int64_t node = device / per_node_;
  for (std::int64_t other = 0; other < node && taken.of_node[node] == 0; ++other) {
    if (taken.of_node[other] == 0 && node_kind_[other] == node_kind_[node]) return true;
  }
  if (per_group_ == 0) return false;
  const std::int64_t group = device / per_group_;
  for (std::int64_t other = node * per_node_ / per_group_; other < group && taken.of_group[group] == 0; ++other) {
    if (taken.of_group[other] == 0) return true;
  }
  for (std::int64_t other = group * per_group_; other < device; ++other) {
    if (!taken.devices[other]) return true;
  }
  return false;
}

bool DeviceKinds::has_lower_equal(const DeviceMap& map, std::size_t rank, const Taken& taken,
                                  std::int64_t device) const {
  if (!wired_) return has_lower_equal(taken, device);
  if (!symmetry_) return false;
  DeviceMap from(map.begin(), map.begin() + static_cast<std::ptrdiff_t>(rank)), to = from;
  from.push_back(device);
  to.push_back(0);
  for (std::int64_t other = 0; other < device; ++other) {
    to.back() = other;
    if (!taken.devices[other] && symmetry_->can_move(from, to)) return true;
  }
  return false;
}

// Rank by rank the lowest device to which its own can be moved while those of the ranks before stay where they were
// put.
DeviceMap DeviceKinds::canonical_on_topology(const DeviceMap& map) const {
  if (!symmetry_) return map;
  Taken taken = nothing_taken();
  DeviceMap from, to;
  for (const std::int64_t device : map) {
    from.push_back(device);
    to.push_back(0);
    while (to.back() < devices_ && (taken.devices[to.back()] || !symmetry_->can_move(from, to))) ++to.back();
    if (to.back() == devices_) return map;  // the search for a symmetry gave up
    take(taken, to.back(), true);
  }
  return to;
}

DeviceMap DeviceKinds::canonical(const DeviceMap& map) const {
  if (wired_) return canonical_on_topology(map);
  // Where the nodes and groups of the map go: the first rank of each decides, the others follow.
  std::map<std::int64_t, std::int64_t> to_node, to_group;
  Taken taken = nothing_taken();
  DeviceMap result;
  for (const std::int64_t device : map) {
    const std::int64_t node = device / per_node_;
    if (!to_node.contains(node)) {
      std::int64_t free = 0;
      while (taken.of_node[free] != 0 || node_kind_[free] != node_kind_[node]) ++free;
      to_node[node] = free;
    }
    std::int64_t moved = to_node[node] * per_node_ + device % per_node_;
    if (per_group_ > 0) {
      const std::int64_t group = device / per_group_;
      if (!to_group.contains(group)) {
        std::int64_t free = to_node[node] * per_node_ / per_group_;
        while (taken.of_group[free] != 0) ++free;
        to_group[group] = free;
      }
      moved = to_group[group] * per_group_;
      while (taken.devices[moved]) ++moved;
    }
    take(taken, moved, true);
    result.push_back(moved);
  }
  return result;
}

bool DeviceKinds::visit_from(DeviceMap& map, std::size_t rank, Taken& taken,
                             const std::function<bool(const DeviceMap&)>& visit) const {
  if (rank == map.size()) return visit(map);
  for (std::int64_t device = 0; device < devices_; ++device) {
    if (taken.devices[device] || has_lower_equal(map, rank, taken, device)) continue;
    map[rank] = device;
    take(taken, device, true);
    const bool go_on = visit_from(map, rank + 1, taken, visit);
    take(taken, device, false);
    if (!go_on) return false;
  }
  return true;
}

bool DeviceKinds::for_each(const std::function<bool(const DeviceMap&)>& visit) const {
  DeviceMap map(static_cast<std::size_t>(devices_));
  Taken taken = nothing_taken();
  return visit_from(map, 0, taken, visit);
}

std::int64_t DeviceKinds::count(std::int64_t most) const {
  std::int64_t counted = 0;
  for_each([&](const DeviceMap&) { return ++counted <= most; });
  return counted;
}

namespace {

// Tries maps once each.
class Trials {
 public:
  Trials(const DeviceKinds& kinds, const std::function<double(const DeviceMap&)>& step_seconds, std::int64_t most,
         DeviceMapSearch& search)
      : kinds_(kinds), step_seconds_(step_seconds), most_(most), search_(search) {}

  bool is_spent() const { return search_.tried >= most_; }

  // Returns whether it is the best so far.
  bool try_map(const DeviceMap& map) {
    const DeviceMap asked = kinds_.canonical(map);
    if (!seen_.insert(asked).second || is_spent()) return false;
    ++search_.tried;
    const double seconds = step_seconds_(asked);
    if (!search_.best.empty() && seconds >= search_.seconds) return false;
    search_.best = asked;
    search_.seconds = seconds;
    return true;
  }

 private:
  const DeviceKinds& kinds_;
  const std::function<double(const DeviceMap&)>& step_seconds_;
  std::int64_t most_;
  DeviceMapSearch& search_;
  std::set<DeviceMap> seen_;
};

// Two blocks of ranks change places, as long as that helps: nodes first, then single ranks.
void improve(Trials& trials, const DeviceMapSearch& search, std::int64_t devices, std::int64_t per_node) {
  for (const std::int64_t block : {per_node, std::int64_t{1}}) {
    for (bool improved = true; improved && !trials.is_spent();) {
      improved = false;
      for (std::int64_t a = 0; a < devices; a += block) {
        for (std::int64_t b = a + block; b < devices && !trials.is_spent(); b += block) {
          DeviceMap swapped = search.best;
          std::swap_ranges(swapped.begin() + a, swapped.begin() + a + block, swapped.begin() + b);
          improved = trials.try_map(swapped) || improved;
        }
      }
    }
  }
}

}  // namespace

DeviceMapSearch search_device_map(const ClusterSpec& spec, const std::function<double(const DeviceMap&)>& step_seconds,
                                  std::int64_t most) {
  const DeviceKinds kinds(spec);
  DeviceMapSearch search;
  Trials trials(kinds, step_seconds, most, search);
  DeviceMap in_order(static_cast<std::size_t>(spec.nodes * spec.devices_per_node));
  std::iota(in_order.begin(), in_order.end(), 0);
  trials.try_map(in_order);
  search.in_rank_order = search.seconds;
  search.all_tried = kinds.count(most) <= most;
  if (search.all_tried) {
    kinds.for_each([&](const DeviceMap& map) { return trials.try_map(map) || true; });
  } else {
    improve(trials, search, std::ssize(in_order), spec.devices_per_node);
  }
  return search;
}

}  // namespace weft
