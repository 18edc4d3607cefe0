#include "graph/group_kind.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// One row for every kind of group. Those without axes are chosen by the place in the pipeline or by heads.
struct GroupRow {
  GroupKind kind;
  std::string_view name;
  std::vector<Axis> axes;
  bool of_experts = false;  // their own mesh
};
const std::vector<GroupRow>& group_rows() {
  static const std::vector<GroupRow> rows{{GroupKind::tp, "tp", {Axis::tp}},
                                          {GroupKind::cp, "cp", {Axis::cp}},
                                          {GroupKind::dp, "dp", {Axis::dp, Axis::cp}},
                                          {GroupKind::ep, "ep", {Axis::ep}, true},
                                          {GroupKind::etp, "etp", {Axis::etp}, true},
                                          {GroupKind::edp, "edp", {Axis::edp}, true},
                                          {GroupKind::tied, "tied", {}},
                                          {GroupKind::norm, "norm", {Axis::tp, Axis::pp}},
                                          {GroupKind::pp_prev, "pp_prev", {}},
                                          {GroupKind::pp_next, "pp_next", {}},
                                          {GroupKind::kv, "kv", {}},
                                          {GroupKind::shard, "shard", {Axis::dp, Axis::cp}},
                                          {GroupKind::replica, "replica", {Axis::dp, Axis::cp}},
                                          {GroupKind::secondary, "secondary", {Axis::dp, Axis::cp}}};
  return rows;
}
const GroupRow& row_of(GroupKind kind) {
  return group_rows()[kind.number];
}

}  // namespace

const std::vector<Axis>& axes_of(GroupKind kind) {
  return row_of(kind).axes;
}

bool is_of_experts(GroupKind kind) {
  return row_of(kind).of_experts;
}

Axis axis_of(GroupKind kind) {
  WEFT_CHECK(row_of(kind).axes.size() == 1);
  return row_of(kind).axes.front();
}

GroupKind group_of(Axis axis) {
  const auto found = std::find_if(group_rows().begin(), group_rows().end(),
                                  [&](const GroupRow& row) { return row.axes == std::vector{axis}; });
  WEFT_CHECK(found != group_rows().end());
  return found->kind;
}

std::span<const GroupKind> group_kinds() {
  static const std::vector<GroupKind> kinds = [] {
    std::vector<GroupKind> listed;
    for (const GroupRow& row : group_rows()) listed.push_back(row.kind);
    return listed;
  }();
  return kinds;
}

std::string_view name_of(GroupKind kind) {
  return row_of(kind).name;
}

}  // namespace weft
