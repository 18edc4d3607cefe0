#include "comm/paced_device/modelled_time.hpp"

#include <algorithm>

#include "collective/collective.hpp"

namespace weft {
namespace {

// Returns the buffer as collective_traffic() takes it: the largest that any member has on either side.
Bytes whole_buffer(const PreparedCall& call) {
  std::int64_t elements = 0;
  for (std::int64_t member = 0; member < call.spec.ranks; ++member) {
    elements = std::max(
        {elements, input_elements(call.spec, call.sizes, member), output_elements(call.spec, call.sizes, member)});
  }
  return Bytes{elements * size_of(call.type).value};
}

}  // namespace

ModelledTime modelled_time(const Cluster& cluster, const PreparedCall& call) {
  const Bytes bytes = whole_buffer(call);
  if (call.spec.ranks < 2 || bytes.value == 0) return {};
  std::vector<Rank> members;
  for (const std::int64_t member : call.members) members.push_back(make_id<Rank>(static_cast<std::size_t>(member)));
  const bool direct = call.spec.kind == Collective::all_to_all || call.spec.kind == Collective::send_recv;
  const GroupView view = group_views(cluster, members).front();
  const CollectiveTraffic traffic =
      collective_traffic(cluster, call.spec.kind, direct ? Algorithm::direct : Algorithm::ring, bytes, view);
  ModelledTime time;
  double busy_seconds = 0;
  for (const FabricTraffic& fabric : traffic.fabrics) {
    for (const LinkId id : cluster.path(fabric.fabric, members.front())) {
      const Link& link = cluster.links()[id.index()];
      time.latency += link.latency * fabric.steps;
      busy_seconds = std::max(busy_seconds, fabric.bytes / link.bandwidth.bytes_per_second);
    }
  }
  time.moving = nanos_from_seconds(busy_seconds);
  return time;
}

}  // namespace weft
