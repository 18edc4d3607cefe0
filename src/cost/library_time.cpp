#include "cost/library_time.hpp"

#include <algorithm>

#include "cost/nccl_model.hpp"

namespace weft {
namespace {

// How many domains of the level below the outermost fabric a group joins, or devices.
std::int64_t domains_joined(const GroupView& view) {
  std::int64_t inner = 1;
  for (const std::int64_t members : view.within) {
    if (members < view.size) inner = std::max(inner, members);
  }
  return (view.size + inner - 1) / inner;
}

std::optional<LibraryTime> nccl_time(const Cluster& cluster, const LibraryCall& call) {
  const std::string& device = cluster.spec().device.name;
  const std::int64_t joined = domains_joined(call.view);
  const bool one_node = cluster.spec().levels[call.traffic.fabrics.back().fabric.index()].joins <= Domain::node;
  const NcclGroup group{call.view.size, one_node ? 1 : joined};
  Nanos hop{0};
  for (const LinkId link : cluster.path(call.traffic.fabrics.back().fabric, Rank{0})) {
    hop += cluster.links()[link.index()].latency;
  }
  const NcclRates rates{call.ring_seconds, hop};
  const auto choice = choose_nccl(call.communication.collective, group, device, call.communication.bytes, rates);
  if (!choice) return std::nullopt;
  return LibraryTime{choice->latency, choice->moving_seconds};
}

}  // namespace

std::optional<LibraryTime> library_time(const Cluster& cluster, const Profile& profile, const LibraryCall& call) {
  if (cluster.spec().execution.links != LinkTiming::nominal) return std::nullopt;
  const Communication& c = call.communication;
  const std::string& level = cluster.level_name(call.traffic.fabrics.back().fabric);
  const LinkProfile& link = profile.link(cluster.spec().device.name, level, LinkTiming::nominal);
  if (const auto reached = link.collective_at(c.collective, domains_joined(call.view), c.bytes)) {
    // What was measured includes the latency, so the bytes take what the latency leaves.
    const double whole = call.outermost_seconds * link.best() / *reached;
    return LibraryTime{call.latency, std::max(0.0, whole - seconds(call.latency))};
  }
  if (profile.collective_model == CollectiveModel::nccl) return nccl_time(cluster, call);
  return std::nullopt;
}

}  // namespace weft
