// The collectives a training step uses, and what each moves over which fabric.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "base/units.hpp"
#include "cluster/cluster.hpp"

namespace weft {

enum class Collective : std::uint8_t {
  broadcast,
  reduce,
  gather,
  scatter,
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  send_recv,
  barrier
};
std::string_view name_of(Collective kind);

// How a collective is carried out (docs/algorithms.md). The planner chooses it. `tree` is the double binary tree,
// `native` the transport library's own call, `carried` a program that the plan carries by value.
enum class Algorithm : std::uint8_t {
  ring,
  tree,
  direct,
  bidirectional_ring,
  binomial_tree,
  recursive_doubling,
  recursive_halving,
  bruck,
  pairwise,
  reduce_broadcast,
  parameter_server,
  hierarchical,
  native,
  carried
};
std::string_view name_of(Algorithm algorithm);

// One rank's view of a group: how many members (itself included) lie in its domain of each fabric, inner to outer. The
// cost of a classic algorithm depends on nothing else.
struct GroupView {
  std::int64_t size = 1;
  std::vector<std::int64_t> within;  // by Cluster::fabrics()
  bool even = true;                  // every member has the same `within`
  friend bool operator==(const GroupView&, const GroupView&) = default;
};

// The views of all members, in their order. Throws Error where no fabric joins two members.
std::vector<GroupView> group_views(const Cluster& cluster, std::span<const Rank> members);

// What one rank sends into a fabric (and, by symmetry, receives from it).
struct FabricTraffic {
  LevelId fabric;
  double bytes = 0;
  std::int64_t steps = 0;  // sequential messages that cross the fabric; each costs one latency
  friend bool operator==(const FabricTraffic&, const FabricTraffic&) = default;
};

struct CollectiveTraffic {
  std::vector<FabricTraffic> fabrics;  // inner to outer, only those with traffic
  std::int64_t steps = 0;              // sequential messages over all fabrics
};

// `bytes` is the whole buffer: what all_reduce reduces, all_gather ends with, reduce_scatter starts with, all_to_all
// redistributes from one rank, and broadcast or send_recv carries. Rings visit domain after domain, so that each
// domain is left once: a rank's share of the crossing is one over the members in its domain.
CollectiveTraffic collective_traffic(const Cluster& cluster, Collective kind, Algorithm algorithm, Bytes bytes,
                                     const GroupView& view);

// Traffic of an all_to_all whose pieces are copies of the same rows for several members, and which sends a row to
// another inner domain (a node) only once. Of the bytes for another domain the fraction `distinct` (0..1) are different
// rows. They go to the member at the sender's own place in that domain, which distributes them; copies for the sender's
// own domain go directly. Results that return are added up before they cross, which moves as much. Groups in one
// domain, or in domains of one member, exchange directly.
CollectiveTraffic forwarded_traffic(const Cluster& cluster, Bytes bytes, const GroupView& view, double distinct);
// The same for that all_to_all: no algorithm moves less.
std::vector<FabricTraffic> minimum_forwarded_traffic(const Cluster& cluster, Bytes bytes, const GroupView& view,
                                                     double distinct);
// Returns the number of members of the domain to which rows are sent once, at least a node; 0 where there is no such
// domain.
std::int64_t forwarding_domain(const Cluster& cluster, const GroupView& view);

// The least that any algorithm moves over each fabric for one rank, on average over its domain. A group that spans n
// domains can first reduce inside them, so the outer fabric carries (n-1)/n of the buffer rather than (N-1)/N for N
// ranks. Where domains hold unequal numbers of members, all_reduce counts only the buffer that every domain must
// receive.
std::vector<FabricTraffic> minimum_traffic(const Cluster& cluster, Collective kind, Bytes bytes, const GroupView& view);

}  // namespace weft
