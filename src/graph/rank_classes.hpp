// Classes of ranks that cannot be distinguished, found by colour refinement: the coarsest partition that is stable
// under stage, device, the links of every group and the class of every peer. One graph per class serves all its ranks,
// so the graph does not grow with the cluster.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/ids.hpp"
#include "cluster/cluster.hpp"
#include "cluster/mesh.hpp"
#include "collective/collective.hpp"
#include "collective/substitution.hpp"
#include "graph/group_kind.hpp"
#include "graph/layout.hpp"

namespace weft {

// Programs of larger groups are not simulated, so their members are not listed.
inline constexpr std::int64_t kListedMembers = 64;

// A group as every rank of a class sees it.
struct ClassGroup {
  GroupView view;
  std::vector<ClassId> members;  // the classes its members belong to, ascending, each once
  // The members of the representative's own group, in their order; empty where they are more than kListedMembers.
  std::vector<Rank> ranks;
  // Where levels may meet, ascending: so many consecutive members lie in one domain of the cluster (a pair of devices,
  // a node, the nodes below a switch). Empty where there are no levels, or where members are of several classes.
  std::vector<std::int64_t> borders;
  std::int64_t in_node = 1;  // members in the own node
  // Members whose places differ between two borders alone, for every two of 1, the borders and the size.
  std::vector<ClassGroup> between;

  bool spans_classes() const { return members.size() > 1; }
  bool leaves_node() const { return in_node < view.size; }
  // The group's own levels: inside nodes and between them, or below switches and between them as well. In a group
  // inside a node, or with a member in each, the innermost ones. Without levels all are 1.
  LevelSizes level_sizes() const;
  // `levels`: others than the group's own.
  bool has_scope(Scope scope, LevelSizes levels = kOwnLevels) const;
  // Itself, or one of its levels, which must be there.
  const ClassGroup& scoped(Scope scope, LevelSizes levels = kOwnLevels) const;
  // Levels where nodes are told apart.
  bool has_node_levels() const { return leaves_node() && has_scope(Scope::inner); }
};

// Equal links of the cluster, a resource that classes share.
struct LinkClass {
  Link link;
  std::string name;  // "nic", "nic#1" where a level has several kinds
};

struct LinkUse {
  std::int32_t link_class = 0;     // index into RankClasses::links
  std::int64_t ranks_on_link = 1;  // ranks of this class that share one such link
};

struct RankClass {
  std::string name;     // "stage 0"; "stage 0 on node 3" where nodes tell the classes of a stage apart, else "stage 0a"
  Rank representative;  // its lowest rank
  std::int64_t ranks = 0;
  std::int64_t stage = 0;  // pipeline rank
  Device device;
  std::vector<ClassGroup> groups;  // by GroupKind
  std::vector<LinkUse> links;      // by level of the cluster

  const ClassGroup& group(GroupKind kind) const { return groups[kind.number]; }
};

struct RankClasses {
  IdVector<ClassId, RankClass> classes;  // ordered by lowest rank
  std::vector<LinkClass> links;
  std::vector<std::int32_t> class_of;  // by rank
};

// What the groups of a layout depend on in the model.
struct ModelGroups {
  bool experts = false;
  std::int64_t key_copies = 1;  // tensor-parallel ranks that hold the same key/value head
  friend bool operator==(const ModelGroups&, const ModelGroups&) = default;
};
ModelGroups model_groups(const Transformer& model, const Layout& layout);

// Returns the ranks of `rank`'s own group of that kind in their order; for pp_prev and pp_next, itself and then the
// neighbour. Empty where it is in no such group.
std::vector<Rank> group_members(const Layout& layout, const ModelGroups& model, GroupKind kind, Rank rank);

RankClasses find_rank_classes(const Cluster& cluster, const Layout& layout, const ModelGroups& model);

}  // namespace weft
