#include "io/figure/group_traffic.hpp"

#include <algorithm>
#include <map>

namespace weft {
namespace {

// Adds bytes that are sent evenly between `from` and `to`, which count shares of the time.
void spread(std::vector<double>& shares, double from, double to, double bytes) {
  const auto count = static_cast<double>(shares.size());
  const double rate = bytes / (to - from);
  for (double at = std::max(from, 0.0); at < std::min(to, count);) {
    const auto share = static_cast<std::size_t>(at);
    const double until = std::min({to, count, static_cast<double>(share) + 1});
    shares[share] += rate * (until - at);
    at = until;
  }
}

}  // namespace

double sent_share(std::string_view collective, std::int32_t group_size) {
  if (group_size < 1) return 1;
  const double others = static_cast<double>(group_size - 1) / static_cast<double>(group_size);
  if (collective == "all_reduce") return 2 * others;
  if (collective == "all_gather" || collective == "reduce_scatter" || collective == "all_to_all") return others;
  return collective == "send_recv" ? 0.5 : 1;
}

std::vector<GroupTraffic> traffic_of_groups(const Timeline& timeline, Nanos begin, Nanos end, std::size_t shares) {
  std::vector<GroupTraffic> groups;
  std::map<std::int32_t, std::size_t> index;  // by the name of the group
  double ranks = 0;
  for (const TimelineRank& rank : timeline.ranks) ranks += static_cast<double>(rank.ranks);
  const double share_nanos = static_cast<double>((end - begin).value) / static_cast<double>(shares);
  for (const Span& span : timeline.spans) {
    const TimelineOperation& operation = timeline.operations[static_cast<std::size_t>(span.operation)];
    if (operation.activity == Activity::compute || operation.group < 0 || operation.bytes <= Bytes{} ||
        span.end <= span.start)
      continue;
    const auto [found, added] = index.try_emplace(operation.group, groups.size());
    if (added)
      groups.push_back({timeline.names[static_cast<std::size_t>(operation.group)], std::vector<double>(shares)});
    const std::string_view collective =
        operation.collective < 0 ? std::string_view()
                                 : std::string_view(timeline.names[static_cast<std::size_t>(operation.collective)]);
    const double weight = static_cast<double>(timeline.ranks[static_cast<std::size_t>(operation.rank)].ranks) / ranks;
    spread(groups[found->second].bytes_per_second, static_cast<double>((span.start - begin).value) / share_nanos,
           static_cast<double>((span.end - begin).value) / share_nanos,
           weight * sent_share(collective, operation.group_size) * static_cast<double>(operation.bytes.value));
  }
  for (GroupTraffic& group : groups) {
    for (double& bytes : group.bytes_per_second) bytes /= share_nanos / 1e9;
  }
  return groups;
}

}  // namespace weft
