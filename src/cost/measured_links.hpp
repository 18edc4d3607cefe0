// What a job's own links carry, as its collectives were measured: in place of the efficiencies of a profile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/cluster.hpp"
#include "cost/profile.hpp"

namespace weft {

// Collectives of one kind over one number of ranks.
struct MeasuredCollective {
  struct Point {
    Bytes bytes;    // the whole buffer
    Bandwidth bus;  // bus bandwidth, as NCCL's tests print it
    friend bool operator==(const Point&, const Point&) = default;
  };
  Collective collective = Collective::all_reduce;
  std::int64_t members = 0;
  std::int64_t per_node = 0;  // of the members; 0: as many as a node has devices
  std::vector<Point> points;  // ascending in bytes
  friend bool operator==(const MeasuredCollective&, const MeasuredCollective&) = default;
};

// Replaces what the profile says of the levels that the groups joined, for the cluster's device. Where one size alone
// was measured, others are as before relative to it. Groups of more nodes than any level of the cluster joins are left
// out. Throws Error where a bandwidth exceeds what the cluster's links can carry.
void apply_measured_links(Profile& profile, const Cluster& cluster, std::span<const MeasuredCollective> measured);

// Scales all that is known of a level's links so that the best size reaches `best`.
void scale_links(LinkProfile& link, double best);

}  // namespace weft
