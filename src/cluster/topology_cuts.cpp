#include "cluster/topology_cuts.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.hpp"
#include "cluster/max_flow.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxDevicesForAllHalves = 16;  // 6,435 pairs of halves

// A source that feeds every device stands behind the topology's vertices.
class GatherFlows {
 public:
  GatherFlows(const Topology& topology, std::span<const std::int64_t> weights)
      : topology_(topology), devices_(topology.devices()), weights_(weights) {
    WEFT_CHECK(weights.size() == devices_.size());
    for (const TopologyLink& link : topology.links) units_.push_back(bandwidth_units(link.bandwidth));
    for (const std::int64_t weight : weights) total_ += weight;
  }

  const std::vector<std::int32_t>& devices() const { return devices_; }

  GatherCut cut_of(std::vector<bool> inside) const {
    GatherCut cut{std::move(inside), 0, 0};
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      if (cut.inside[devices_[rank]]) cut.weight += weights_[rank];
    }
    for (std::size_t i = 0; i < units_.size(); ++i) {
      const TopologyLink& link = topology_.links[i];
      if (cut.inside[link.from] && !cut.inside[link.to]) cut.out_bandwidth += units_[i];
    }
    return cut;
  }

  // In the time that `slowest` needs, do all pieces reach every device? Otherwise returns a slower cut.
  std::optional<GatherCut> slower_than(const GatherCut& slowest) const {
    const std::int64_t common = std::gcd(slowest.weight, slowest.out_bandwidth);
    const std::int64_t time = slowest.weight / common, rate = slowest.out_bandwidth / common;
    MaxFlow flow(topology_.vertices.size() + 1);
    const auto source = static_cast<std::int32_t>(topology_.vertices.size());
    for (std::size_t i = 0; i < units_.size(); ++i) {
      flow.add_edge(topology_.links[i].from, topology_.links[i].to, units_[i] * time);
    }
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      flow.add_edge(source, devices_[rank], weights_[rank] * rate);
    }
    for (const std::int32_t device : devices_) {
      if (flow.run(source, device, total_ * rate) == total_ * rate) continue;
      std::vector<bool> inside = flow.source_side();
      inside.pop_back();
      return cut_of(std::move(inside));
    }
    return std::nullopt;
  }

 private:
  const Topology& topology_;
  std::vector<std::int32_t> devices_;
  std::span<const std::int64_t> weights_;
  std::vector<std::int64_t> units_;  // by link
  std::int64_t total_ = 0;
};

bool is_slower(const GatherCut& a, const GatherCut& b) {
  return static_cast<double>(a.weight) * static_cast<double>(b.out_bandwidth) >
         static_cast<double>(b.weight) * static_cast<double>(a.out_bandwidth);
}

std::int64_t flow_between(const Topology& topology, const std::vector<std::int32_t>& devices,
                          const std::vector<bool>& in_half) {
  MaxFlow flow(topology.vertices.size() + 2);
  const auto source = static_cast<std::int32_t>(topology.vertices.size());
  for (const TopologyLink& link : topology.links) flow.add_edge(link.from, link.to, bandwidth_units(link.bandwidth));
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (in_half[rank]) {
      flow.add_edge(source, devices[rank], MaxFlow::kUnlimited);
    } else {
      flow.add_edge(devices[rank], source + 1, MaxFlow::kUnlimited);
    }
  }
  return flow.run(source, source + 1);
}

std::vector<std::vector<bool>> halves_to_try(std::size_t devices, bool all) {
  std::vector<std::vector<bool>> halves;
  const std::size_t half = devices / 2;
  if (!all) {
    for (std::size_t begin = 0; begin < devices; ++begin) {
      std::vector<bool>& chosen = halves.emplace_back(devices, false);
      for (std::size_t i = 0; i < half; ++i) chosen[(begin + i) % devices] = true;
    }
    return halves;
  }
  for (std::uint32_t set = 0; set < (1U << devices); ++set) {
    if (static_cast<std::size_t>(std::popcount(set)) != half) continue;
    std::vector<bool>& chosen = halves.emplace_back(devices);
    for (std::size_t i = 0; i < devices; ++i) chosen[i] = (set >> i & 1U) != 0;
  }
  return halves;
}

}  // namespace

GatherCut slowest_gather_cut(const Topology& topology, std::span<const std::int64_t> weights) {
  const GatherFlows flows(topology, weights);
  std::optional<GatherCut> slowest;
  for (const std::int32_t device : flows.devices()) {
    std::vector<bool> others(topology.vertices.size(), true);
    others[device] = false;
    GatherCut cut = flows.cut_of(std::move(others));
    if (cut.weight > 0 && (!slowest || is_slower(cut, *slowest))) slowest = std::move(cut);
  }
  WEFT_CHECK(slowest.has_value());
  while (std::optional<GatherCut> slower = flows.slower_than(*slowest)) slowest = std::move(*slower);
  return *slowest;
}

GatherCut slowest_gather_cut(const Topology& topology) {
  return slowest_gather_cut(topology, std::vector<std::int64_t>(topology.devices().size(), 1));
}

Bandwidth gather_bandwidth(const GatherCut& cut, std::int64_t pieces) {
  return {static_cast<double>(pieces) * static_cast<double>(cut.out_bandwidth) / static_cast<double>(cut.weight) *
          kBandwidthUnit};
}

Bisection slowest_bisection(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  const bool all = devices.size() <= kMaxDevicesForAllHalves;
  Bisection slowest;
  std::int64_t least = MaxFlow::kUnlimited;
  for (const std::vector<bool>& half : halves_to_try(devices.size(), all)) {
    const std::int64_t flow = flow_between(topology, devices, half);
    if (flow >= least) continue;
    least = flow;
    slowest = {{}, {static_cast<double>(flow) * kBandwidthUnit}, all};
    for (std::size_t rank = 0; rank < half.size(); ++rank) {
      if (half[rank]) slowest.half.push_back(static_cast<std::int32_t>(rank));
    }
  }
  return slowest;
}

Topology reversed(const Topology& topology) {
  Topology turned = topology;
  for (TopologyLink& link : turned.links) std::swap(link.from, link.to);
  return turned;
}

}  // namespace weft
