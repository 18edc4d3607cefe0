// Which rank is on which device, and which of the ways to put them differ at all.
//
// A map lists the device of each rank. Devices that nobody can tell apart may change places: those below the same links
// of a node, groups of such devices in a node, and nodes that are alike. Of all maps that differ only in such changes
// one stands for the others: the one in which equal devices are taken in the order of their numbers. Where the cluster
// has a topology, the symmetries of its links decide which devices are equal (cluster/device_symmetry.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cluster/cluster.hpp"
#include "cluster/device_symmetry.hpp"

namespace weft {

using DeviceMap = std::vector<std::int64_t>;

class DeviceKinds {
 public:
  explicit DeviceKinds(const ClusterSpec& spec);

  // The map that stands for all that cannot be told from this one.
  DeviceMap canonical(const DeviceMap& map) const;
  // Calls `visit` with every canonical map, in ascending order, until it returns false. Returns whether it saw all.
  bool for_each(const std::function<bool(const DeviceMap&)>& visit) const;
  // Canonical maps, at most so many: a result of `most` + 1 says that there are more.
  std::int64_t count(std::int64_t most) const;

 private:
  // What is taken of devices, their groups and nodes while a map is filled rank by rank.
  struct Taken {
    std::vector<bool> devices;
    std::vector<std::int64_t> of_group, of_node;
  };
  Taken nothing_taken() const;
  void take(Taken& taken, std::int64_t device, bool is_taken) const;
  // Whether a device that is free has an equal with a lower number that is free too.
  bool has_lower_equal(const Taken& taken, std::int64_t device) const;
  // The same on a topology, after the first `rank` ranks of a map.
  bool has_lower_equal(const DeviceMap& map, std::size_t rank, const Taken& taken, std::int64_t device) const;
  DeviceMap canonical_on_topology(const DeviceMap& map) const;
  bool visit_from(DeviceMap& map, std::size_t rank, Taken& taken,
                  const std::function<bool(const DeviceMap&)>& visit) const;

  std::int64_t devices_ = 0, per_node_ = 1, per_group_ = 1;  // a group: consecutive devices of a node
  std::vector<std::int64_t> node_kind_;                      // nodes of equal kind may change places
  bool wired_ = false;                                       // there is a topology
  std::shared_ptr<const DeviceSymmetry> symmetry_;           // none: all devices of a topology differ
};

// Searches the map with the shortest step. `step_seconds` plans and simulates; it is asked for at most `most` maps.
struct DeviceMapSearch {
  DeviceMap best;
  double seconds = 0, in_rank_order = 0;
  std::int64_t tried = 0;
  bool all_tried = false;  // of those that differ
};
DeviceMapSearch search_device_map(const ClusterSpec& spec, const std::function<double(const DeviceMap&)>& step_seconds,
                                  std::int64_t most);

}  // namespace weft
