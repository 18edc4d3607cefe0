// The kinds of groups that a step communicates in: rows of one table.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cluster/mesh.hpp"

namespace weft {

// A kind of group that a step communicates in: a row of the table in group_kind.cpp, which gives the axes of its ranks.
struct GroupKind {
  std::uint8_t number = 0;
  friend auto operator<=>(const GroupKind&, const GroupKind&) = default;
  static const GroupKind tp;    // tensor parallel
  static const GroupKind cp;    // context parallel
  static const GroupKind dp;    // dense gradients and parameters: data x context parallel ranks
  static const GroupKind ep;    // expert parallel
  static const GroupKind etp;   // tensor parallel inside experts
  static const GroupKind edp;   // expert gradients and parameters
  static const GroupKind tied;  // first and last pipeline stage: tied embeddings
  static const GroupKind norm;  // all ranks that hold different parameters: the global gradient norm
  static const GroupKind
      pp_prev;  // this rank and its predecessor in the pipeline (a ring: stage 0's is the last stage)
  static const GroupKind pp_next;
  static const GroupKind
      kv;  // tensor-parallel ranks with the same key/value head, where there are fewer heads than ranks
  // Where data-parallel groups hold several sets of ZeRO's shards (Layout::has_shard_groups):
  static const GroupKind shard;    // consecutive members of a dp group that share one set
  static const GroupKind replica;  // members of a dp group with the same shard
  // Consecutive members of a dp group that keep a layer's parameters for its backward (Layout::zero_secondary).
  static const GroupKind secondary;
};
inline constexpr GroupKind GroupKind::tp{0}, GroupKind::cp{1}, GroupKind::dp{2}, GroupKind::ep{3}, GroupKind::etp{4},
    GroupKind::edp{5}, GroupKind::tied{6}, GroupKind::norm{7}, GroupKind::pp_prev{8}, GroupKind::pp_next{9},
    GroupKind::kv{10}, GroupKind::shard{11}, GroupKind::replica{12}, GroupKind::secondary{13};
// All kinds, each at the place of its number.
std::span<const GroupKind> group_kinds();
std::string_view name_of(GroupKind kind);

// The axes that the ranks of a group lie along. None: its members are chosen by their stage or their heads. Of the
// ranks along their axes, shard, replica and secondary groups have those that their place in the dp group says.
const std::vector<Axis>& axes_of(GroupKind kind);
// Whether these are axes of the experts' mesh.
bool is_of_experts(GroupKind kind);
// Converts between a group and its one axis, for groups along a single axis (tp, cp, ep, etp, edp).
Axis axis_of(GroupKind kind);
GroupKind group_of(Axis axis);

}  // namespace weft
