// What the transfers of a group carry over time.
#pragma once

#include <string>
#include <vector>

#include "timeline/timeline.hpp"

namespace weft {

struct GroupTraffic {
  std::string group;                     // "tp", "dp", ...
  std::vector<double> bytes_per_second;  // that a mean rank sends, in equal shares of the time
};

// Groups in the order of their first transfer. A transfer sends what its collective must: of n ranks an all_reduce
// 2 (n - 1) / n of the buffer, an all_gather, reduce_scatter or all_to_all (n - 1) / n, anything else all of it; evenly
// while it lasts. Of a message each end is a span of its own and counts half.
std::vector<GroupTraffic> traffic_of_groups(const Timeline& timeline, Nanos begin, Nanos end, std::size_t shares);

// What a rank of a group of so many sends of every byte of the buffer.
double sent_share(std::string_view collective, std::int32_t group_size);

}  // namespace weft
