// Link numbers are computed, not stored: a level needs its links and four integers, however many devices there are.
#include "cluster/cluster.hpp"

#include <algorithm>
#include <utility>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "cluster/topology.hpp"
#include "cluster/validate.hpp"

namespace weft {
namespace {

// 2 GiB of links; a cluster of the largest size may have four unshared levels.
constexpr std::int64_t kMaxLinks = 4 * kMaxDevices;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

LevelId find_level(const ClusterSpec& spec, const std::string& name) {
  const auto found =
      std::find_if(spec.levels.begin(), spec.levels.end(), [&](const LevelSpec& level) { return level.name == name; });
  WEFT_CHECK(found != spec.levels.end());  // validate() has seen every name
  return make_id<LevelId>(found - spec.levels.begin());
}

}  // namespace

std::string_view name_of(LinkTiming timing) {
  static constexpr std::string_view kNames[] = {"nominal", "paced", "measured"};
  return enum_name(kNames, timing);
}

std::string_view name_of(CollectiveMaker maker) {
  return maker == CollectiveMaker::library ? "library" : "programs";
}

std::string_view name_of(Runtime runtime) {
  static constexpr std::string_view kNames[] = {"none", "cpu", "cuda"};
  return enum_name(kNames, runtime);
}

Cluster::Cluster(ClusterSpec spec) : spec_(std::move(spec)) {
  validate(spec_);
  device_count_ = spec_.nodes * spec_.devices_per_node;
  if (spec_.topology && std::ssize((*spec_.topology).devices()) != device_count_) {
    fail("cluster '{}': topology '{}' has {} devices; the cluster has {}", spec_.name, (*spec_.topology).name,
         (*spec_.topology).devices().size(), device_count_);
  }
  for (std::size_t i = 0; i < spec_.levels.size(); ++i) {
    const auto level = make_id<LevelId>(i);
    level_links_.push_back(add_links(level));
    if (spec_.levels[i].joins != Domain::none) fabrics_.push_back(level);
    std::vector<LevelId>& via = via_.emplace_back();
    for (const std::string& name : spec_.levels[i].via) via.push_back(find_level(spec_, name));
  }
  for (const NodeOverride& change : spec_.overrides) apply(change);
}

Cluster::LevelLinks Cluster::add_links(LevelId level) {
  const LevelSpec& rule = spec_.levels[level.index()];
  LevelLinks links;
  links.first = static_cast<std::int64_t>(links_.size());
  links.shared_by = rule.shared_by;
  links.devices_per_block = spec_.devices_per_node;
  if (rule.shared_by > spec_.devices_per_node) {
    links.devices_per_block *= spec_.nodes_per_leaf > 0 ? spec_.nodes_per_leaf : spec_.nodes;
  }
  links.links_per_block = divide_up(links.devices_per_block, links.shared_by);
  // The last leaf may hold fewer nodes than the others.
  const std::int64_t count = device_count_ / links.devices_per_block * links.links_per_block +
                             divide_up(device_count_ % links.devices_per_block, links.shared_by);
  if (links.first + count > kMaxLinks) {
    fail("level '{}': the cluster has more than {} links; share links or drop a level", rule.name, kMaxLinks);
  }
  const Link link{
      .level = level, .bandwidth = rule.bandwidth, .latency = rule.latency, .duplex = rule.duplex, .burst = rule.burst};
  links_.resize(links_.size() + static_cast<std::size_t>(count), link);
  return links;
}

void Cluster::apply(const NodeOverride& change) {
  if (change.device) node_devices_[change.node] = *change.device;
  if (change.level.empty()) return;
  const LevelId level = find_level(spec_, change.level);
  const std::int64_t begin = change.node * spec_.devices_per_node;
  const LinkId first = link_at(level, begin);
  const LinkId last = link_at(level, begin + spec_.devices_per_node - 1);
  for (std::size_t i = first.index(); i <= last.index(); ++i) {
    if (change.bandwidth) links_[i].bandwidth = *change.bandwidth;
    if (change.latency) links_[i].latency = *change.latency;
  }
}

std::int64_t Cluster::device_of(Rank rank) const {
  WEFT_CHECK(rank.valid() && rank.value < device_count_);
  return spec_.device_map.empty() ? rank.value : spec_.device_map[rank.index()];
}

NodeId Cluster::node_of(Rank rank) const {
  return NodeId{static_cast<std::int32_t>(device_of(rank) / spec_.devices_per_node)};
}

const Device& Cluster::device(Rank rank) const {
  const auto found = node_devices_.find(node_of(rank).value);
  return found == node_devices_.end() ? spec_.device : found->second;
}

std::int64_t Cluster::domain_of(LevelId fabric, Rank rank) const {
  WEFT_CHECK(fabric.valid() && fabric.index() < level_count());
  const LevelSpec& level = spec_.levels[fabric.index()];
  const std::int64_t node = node_of(rank).value;
  switch (effective_domain(spec_, level)) {
    case Domain::part:
      return device_of(rank) / level.part;
    case Domain::node:
      return node;
    case Domain::leaf:
      return node / spec_.nodes_per_leaf;
    case Domain::cluster:
      return 0;
    case Domain::none:
      break;
  }
  WEFT_CHECK(false && "a hop level has no domain");
  return 0;
}

LinkId Cluster::link_of(LevelId level, Rank rank) const {
  return link_at(level, device_of(rank));
}

LinkId Cluster::link_at(LevelId level, std::int64_t device) const {
  WEFT_CHECK(level.valid() && level.index() < level_count());
  const LevelLinks& links = level_links_[level.index()];
  const std::int64_t block = device / links.devices_per_block;
  const std::int64_t within = device % links.devices_per_block / links.shared_by;
  return LinkId{static_cast<std::int32_t>(links.first + block * links.links_per_block + within)};
}

std::vector<LinkId> Cluster::path(LevelId fabric, Rank rank) const {
  WEFT_CHECK(fabric.valid() && fabric.index() < level_count());
  std::vector<LinkId> links;
  links.reserve(via_[fabric.index()].size() + 1);
  for (const LevelId level : via_[fabric.index()]) links.push_back(link_of(level, rank));
  links.push_back(link_of(fabric, rank));
  return links;
}

std::size_t Cluster::fabrics_of_parts() const {
  const auto joins_parts = [&](LevelId fabric) { return spec_.levels[fabric.index()].joins == Domain::part; };
  return static_cast<std::size_t>(std::count_if(fabrics_.begin(), fabrics_.end(), joins_parts));
}

LevelId Cluster::common_fabric(Rank a, Rank b) const {
  for (const LevelId fabric : fabrics_) {
    if (domain_of(fabric, a) == domain_of(fabric, b)) return fabric;
  }
  fail("cluster '{}': no level joins devices {} and {}", spec_.name, a.value, b.value);
}

}  // namespace weft
