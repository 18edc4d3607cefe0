// A cluster: devices in nodes, and levels of links between them.
//
// A level is a class of links. A *fabric* level joins all devices of a domain (a bridge joins a pair of devices, nvlink
// joins a node, nic joins the nodes of a leaf, spine joins the leaves); two devices talk over the innermost fabric
// whose domain holds both. A *hop* level (pcie) joins nothing by itself; fabrics name it in `via`. The way from a
// device into a fabric is the list of links of its `via` levels and its own. A link may be shared by several devices
// (one NIC for eight GPUs).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "cluster/device.hpp"
#include "cluster/shared_topology.hpp"

namespace weft {

enum class Duplex { full, half };  // half: both directions share the bandwidth

struct Link {
  LevelId level;
  Bandwidth bandwidth;  // per direction if full duplex
  Nanos latency;
  Duplex duplex = Duplex::full;
  Bytes burst{};  // see LevelSpec
  friend bool operator==(const Link&, const Link&) = default;
};

// Which devices a level joins. A hop joins none; a part is so many consecutive devices of a node.
enum class Domain { none, part, node, leaf, cluster };

struct LevelSpec {
  std::string name;
  Domain joins = Domain::none;
  std::int64_t part = 0;         // devices of a part, where it joins parts; they divide those of a node
  std::vector<std::string> via;  // levels whose links are crossed on the way, inner to outer
  Bandwidth bandwidth;           // of one link, per direction
  Nanos latency;
  Duplex duplex = Duplex::full;
  // Number of consecutive devices of a node that share one link (the last link of a node may serve fewer). It may
  // exceed the devices of a node only where the level joins leaf or cluster, and is then a multiple of them, at most a
  // leaf's.
  std::int64_t shared_by = 1;
  // Bytes that an idle link saves up and later lets through at once, per direction. Shaped links (token buckets) do
  // that; paced links (comm/local) do not.
  Bytes burst{};
  friend bool operator==(const LevelSpec&, const LevelSpec&) = default;
};

// A node that differs from the others. Where nodes share a link, an override of one of them changes that link for all.
struct NodeOverride {
  std::int64_t node = 0;
  std::string level;  // "" where only the device differs
  std::optional<Bandwidth> bandwidth;
  std::optional<Nanos> latency;
  std::optional<Device> device;
  friend bool operator==(const NodeOverride&, const NodeOverride&) = default;
};

// How the stated bandwidth of links relates to the rate that messages get.
enum class LinkTiming : std::uint8_t {
  nominal,  // stated by the vendor; a profile says how much of it is reached
  paced,    // messages take exactly that long (comm/local, comm/paced_device): the network is emulated
  measured  // measured between ranks
};
std::string_view name_of(LinkTiming timing);

// Whose collectives move the data, which decides how they are priced.
enum class CollectiveMaker : std::uint8_t {
  library,  // NCCL and the like: closed forms, with the efficiencies of a profile
  programs  // Weft's own (collective/program.hpp), which are simulated
};
std::string_view name_of(CollectiveMaker maker);

// What executes plans on the cluster. `weft run` needs a runtime, which also sets the defaults of training flags.
enum class Runtime : std::uint8_t {
  none,  // plans are made and simulated only
  cpu,   // ranks of this machine compute on its processors
  cuda   // ranks of this machine compute on its NVIDIA GPUs
};
std::string_view name_of(Runtime runtime);

// How training on a cluster is carried out. The three facts are independent: a run on GPUs over a measured network has
// measured links, a library's collectives and a runtime.
struct Execution {
  LinkTiming links = LinkTiming::nominal;
  CollectiveMaker collectives = CollectiveMaker::library;
  Runtime runtime = Runtime::none;
  friend bool operator==(const Execution&, const Execution&) = default;
};
// The facts of `local:N`, where ranks of this machine emulate a cluster.
inline constexpr Execution kEmulation{LinkTiming::paced, CollectiveMaker::programs, Runtime::cpu};

// The facts of `gpu:N`: GPUs of this machine, with NCCL between them.
inline constexpr Execution kGpuRanks{LinkTiming::nominal, CollectiveMaker::library, Runtime::cuda};

// The facts of `gpu:N,link=RATE`: partitions of one GPU, with copies between them that are paced to a link.
inline constexpr Execution kPacedGpuRanks{LinkTiming::paced, CollectiveMaker::library, Runtime::cuda};

// A cluster as a user states it in a preset string or a JSON file; plain data.
struct ClusterSpec {
  std::string name;
  Device device;
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::int64_t nodes_per_leaf = 0;  // 0: one leaf holds all nodes
  std::vector<LevelSpec> levels;    // inner to outer
  std::vector<NodeOverride> overrides;
  Execution execution = {};
  // The device of each rank, counted node by node; empty: rank i has device i. Nothing else tells ranks from devices.
  std::vector<std::int64_t> device_map = {};
  // Over which links messages go, where that is known; programs are timed on it, and emulated links follow it. What a
  // library moves is priced by levels all the same.
  SharedTopology topology = {};
  friend bool operator==(const ClusterSpec&, const ClusterSpec&) = default;
};

class Cluster {
 public:
  // Validates the spec and throws Error naming the field, the value and what is allowed.
  explicit Cluster(ClusterSpec spec);

  const ClusterSpec& spec() const { return spec_; }
  std::int64_t device_count() const { return device_count_; }
  // The number of a rank's device, counted node by node.
  std::int64_t device_of(Rank rank) const;
  NodeId node_of(Rank rank) const;
  const Device& device(Rank rank) const;

  const std::vector<Link>& links() const { return links_; }
  std::size_t level_count() const { return spec_.levels.size(); }
  const std::string& level_name(LevelId level) const { return spec_.levels[level.index()].name; }

  // Fabric levels, inner to outer.
  const std::vector<LevelId>& fabrics() const { return fabrics_; }
  // How many of the first of them join parts of a node only.
  std::size_t fabrics_of_parts() const;
  // The domain of a rank's device on a fabric; devices with the same number can talk over it.
  std::int64_t domain_of(LevelId fabric, Rank rank) const;
  // The link of a rank's device at any level.
  LinkId link_of(LevelId level, Rank rank) const;
  // Links from a rank's device into the fabric, inner to outer.
  std::vector<LinkId> path(LevelId fabric, Rank rank) const;
  // The innermost fabric that joins both; throws Error where none does.
  LevelId common_fabric(Rank a, Rank b) const;

 private:
  // The links of a level, numbered from `first`: links_per_block of them in each block (a node, or a leaf
  // where links are shared among nodes), so that no link crosses the border of its block.
  struct LevelLinks {
    std::int64_t first = 0;
    std::int64_t shared_by = 1;
    std::int64_t devices_per_block = 1;
    std::int64_t links_per_block = 1;
  };
  LevelLinks add_links(LevelId level);
  LinkId link_at(LevelId level, std::int64_t device) const;
  void apply(const NodeOverride& change);

  ClusterSpec spec_;
  std::int64_t device_count_ = 0;
  std::map<std::int64_t, Device> node_devices_;  // nodes whose device differs
  std::vector<Link> links_;
  std::vector<LevelId> fabrics_;
  std::vector<LevelLinks> level_links_;    // by level
  std::vector<std::vector<LevelId>> via_;  // by level
};

}  // namespace weft
