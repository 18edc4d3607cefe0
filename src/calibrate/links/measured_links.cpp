#include "calibrate/links/measured_links.hpp"

#include <fmt/format.h>

#include "cluster/presets.hpp"

namespace weft {

ClusterSpec cluster_of(const MeasuredLink& link, std::int64_t ranks) {
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic=10GB/s", ranks));
  spec.execution.links = LinkTiming::measured;
  spec.levels.front().bandwidth = {link.goodput};
  spec.levels.front().latency = link.latency;
  spec.levels.front().burst = link.burst;
  return spec;
}

std::vector<Rank> members_up_to(std::int64_t ranks) {
  std::vector<Rank> members;
  for (std::int64_t rank = 0; rank < ranks; ++rank) members.push_back(make_id<Rank>(rank));
  return members;
}

Nanos time_over_tcp(Algorithm algorithm, std::int64_t parts, const ProgramQuestion& question, const MeasuredLink& link,
                    const HostWork& host) {
  ClusterSpec spec = cluster_of(link, std::ssize(question.members));
  spec.levels.front().latency = host.latency;
  spec.levels.front().burst = host.burst;
  ProgramTimeOptions time;
  time.tcp = TcpTraffic{
      .host_rate = host.rate, .per_message = host.per_message, .copies = host.copies, .reductions = host.reductions};
  return host.call + with_parts(algorithm, parts, question, Cluster(spec), time)->time;
}

}  // namespace weft
