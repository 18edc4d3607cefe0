#include "graph/rank_classes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "base/error.hpp"
#include "cluster/wiring_signature.hpp"
#include "graph/group_levels.hpp"

namespace weft {
namespace {

using Colour = std::uint64_t;

Colour mix(Colour a, Colour b) {  // splitmix64's finalizer over a running combination
  Colour x = a * 0x9E3779B97F4A7C15ULL + b + 0x632BE59BD9B4E019ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

Colour hash_of(double value) {
  return std::hash<double>{}(value);
}

Colour colour_of(const Device& device) {
  Colour colour = std::hash<std::string>{}(device.name);
  for (const double figure : {device.matrix_tflops_16, device.matrix_tflops_32, device.matrix_tflops_8,
                              device.matrix_tflops_4, device.vector_tflops_32, device.memory_bandwidth.bytes_per_second,
                              device.compute_slowdown, device.transfer_slowdown}) {
    colour = mix(colour, hash_of(figure));
  }
  colour = mix(colour, static_cast<Colour>(device.memory.value));
  return mix(colour, static_cast<Colour>(device.compute_units));
}

std::vector<Axis> axes_of(GroupKind kind, const Layout& layout) {
  // Data-parallel ranks also hold different parameters where ZeRO shards them or experts are spread over them.
  const bool all_differ = layout.zero > 0 || layout.ep > 1 || layout.etp > layout.tp;
  if (kind == GroupKind::norm && all_differ) return {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
  return axes_of(kind);
}

// The members of a tensor-parallel group that hold the same key/value head follow each other.
std::vector<Rank> with_same_head(const std::vector<Rank>& tensor_parallel, std::int64_t copies, std::int64_t position) {
  const auto first = tensor_parallel.begin() + position / copies * copies;
  return {first, first + copies};
}

// Whether pipeline stages hold copies of the same parameters: the first and the last one of tied embeddings or, with
// two directions, each and its mirror image.
bool has_tied_groups(const Layout& layout) {
  return layout.directions() > 1 || !layout.ends_meet();
}

// Whether a job has groups of that kind at all.
bool has_groups(GroupKind kind, const Layout& layout, const ModelGroups& model) {
  if (is_of_experts(kind)) return model.experts;
  if (kind == GroupKind::shard || kind == GroupKind::replica) return layout.has_shard_groups();
  if (kind == GroupKind::secondary) return layout.zero_secondary > 0;
  return kind != GroupKind::kv || model.key_copies > 1;
}

// Whether ranks of the same axes are in different groups of this kind because of their shards. The gradient norm is
// summed inside each replica, where every shard is once.
bool is_divided_by_shards(GroupKind kind, const Layout& layout) {
  if (kind == GroupKind::secondary) return layout.zero_secondary > 0;
  return layout.has_shard_groups() &&
         (kind == GroupKind::shard || kind == GroupKind::replica || kind == GroupKind::norm);
}

// Returns which of the groups that lie along the same axes a rank is in. Its place is that among the ranks that hold
// the same parameters, in their order.
std::int64_t group_by_shards(GroupKind kind, const Layout& layout, const Mesh& mesh, Rank rank) {
  const std::vector<Axis>& axes = axes_of(GroupKind::dp);
  std::int64_t place = 0, stride = 1;
  for (const auto& [axis, size] : mesh.order()) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) continue;
    place += mesh.coordinate(axis, rank) * stride;
    stride *= size;
  }
  if (kind == GroupKind::secondary) return place / layout.zero_secondary;
  return kind == GroupKind::replica ? place % layout.shards() : place / layout.shards();
}

std::vector<std::vector<Rank>> enumerate_by_shards(GroupKind kind, const Layout& layout, const Mesh& mesh) {
  std::map<std::pair<Rank, std::int64_t>, std::size_t> known;  // by the first rank along the axes
  std::vector<std::vector<Rank>> groups;
  for (std::int32_t r = 0; r < mesh.size(); ++r) {
    Rank first{r};
    for (const Axis axis : axes_of(kind, layout)) first = mesh.neighbour(first, axis, 0);
    const std::pair key{first, group_by_shards(kind, layout, mesh, {r})};
    const auto [found, is_new] = known.try_emplace(key, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back({r});
  }
  return groups;
}

// All groups of one kind, each a list of ranks; ranks in no group (tied, middle stages) are left out.
std::vector<std::vector<Rank>> enumerate_groups(GroupKind kind, const Layout& layout, const ModelGroups& model,
                                                const Mesh& dense, const Mesh& expert) {
  if (is_divided_by_shards(kind, layout)) return enumerate_by_shards(kind, layout, dense);
  std::vector<std::vector<Rank>> groups;
  const auto ranks = static_cast<std::int32_t>(dense.size());
  for (std::int32_t r = 0; r < ranks; ++r) {
    const Rank rank{r};
    if (kind == GroupKind::pp_next || kind == GroupKind::pp_prev) {
      const std::int64_t stage = dense.coordinate(Axis::pp, rank);
      const std::int64_t other =
          kind == GroupKind::pp_next ? (stage + 1) % layout.pp : (stage + layout.pp - 1) % layout.pp;
      groups.push_back({rank, dense.neighbour(rank, Axis::pp, other)});
    } else if (kind == GroupKind::tied) {
      const std::int64_t stage = dense.coordinate(Axis::pp, rank);
      if (layout.directions() == 1 ? stage != 0 : 2 * stage >= layout.pp) continue;
      groups.push_back({rank, dense.neighbour(rank, Axis::pp, layout.pp - 1 - stage)});
    } else if (kind == GroupKind::kv) {
      const std::int64_t position = dense.coordinate(Axis::tp, rank);
      if (position % model.key_copies != 0) continue;
      groups.push_back(with_same_head(dense.group(rank, {Axis::tp}), model.key_copies, position));
    } else {
      const Mesh& mesh = is_of_experts(kind) ? expert : dense;
      const std::vector<Axis> axes = axes_of(kind, layout);
      const bool leads =
          std::all_of(axes.begin(), axes.end(), [&](Axis axis) { return mesh.coordinate(axis, rank) == 0; });
      if (leads) groups.push_back(mesh.group(rank, axes));
    }
  }
  return groups;
}

struct GroupTable {
  GroupKind kind;
  std::vector<std::vector<Rank>> groups;
  std::vector<std::int32_t> group_of;  // by rank; -1: none
  std::vector<std::int32_t> view_of;   // by rank, index into views
  std::vector<GroupView> views;        // distinct ones, or of groups that lie on the topology in different ways
};

// A pp_next or pp_prev group belongs only to its first rank.
bool belongs_to_first(GroupKind kind) {
  return kind == GroupKind::pp_next || kind == GroupKind::pp_prev;
}

// How a rank's group lies on the topology, and how the groups of its levels do, as far as programs are simulated for
// them: these simulations then hold for every rank of a class.
std::vector<std::int32_t> wiring_of(const Cluster& cluster, const std::vector<Rank>& members, Rank self,
                                    const GroupView& view, WiringSignatures& signatures) {
  if (!cluster.spec().topology) return {};
  const auto signature = [&](const std::vector<Rank>& ranks) {
    return std::ssize(ranks) <= kListedMembers ? signatures.of(ranks) : -1;
  };
  std::vector<std::int32_t> wiring{signature(members)};
  for (const LevelSpan span : level_spans(level_borders(cluster, members, view), view.size)) {
    wiring.push_back(signature(members_between(members, span, self)));
  }
  return wiring;
}

GroupTable make_table(GroupKind kind, const Cluster& cluster, const Layout& layout, const ModelGroups& model,
                      const Mesh& dense, const Mesh& expert, WiringSignatures& signatures) {
  GroupTable table;
  table.kind = kind;
  const std::size_t ranks = dense.size();
  table.group_of.assign(ranks, -1);
  table.view_of.assign(ranks, -1);
  const bool trivial = belongs_to_first(kind) ? layout.pp == 1 : kind == GroupKind::tied && !has_tied_groups(layout);
  if (trivial) return table;
  table.groups = enumerate_groups(kind, layout, model, dense, expert);
  using Seen = std::tuple<std::int64_t, std::vector<std::int64_t>, bool, std::vector<std::int32_t>>;
  std::map<Seen, std::int32_t> known;
  for (std::size_t g = 0; g < table.groups.size(); ++g) {
    const std::vector<GroupView> views = group_views(cluster, table.groups[g]);
    const std::size_t owners = belongs_to_first(kind) ? 1 : table.groups[g].size();
    for (std::size_t i = 0; i < owners; ++i) {
      const std::size_t rank = table.groups[g][i].index();
      table.group_of[rank] = static_cast<std::int32_t>(g);
      std::vector<std::int32_t> wiring = wiring_of(cluster, table.groups[g], table.groups[g][i], views[i], signatures);
      const auto [it, added] = known.try_emplace(Seen{views[i].size, views[i].within, views[i].even, std::move(wiring)},
                                                 static_cast<std::int32_t>(table.views.size()));
      if (added) table.views.push_back(views[i]);
      table.view_of[rank] = it->second;
    }
  }
  return table;
}

class Refinement {
 public:
  Refinement(const Cluster& cluster, const Layout& layout, const ModelGroups& model)
      : cluster_(cluster),
        layout_(layout),
        dense_(dense_mesh(layout)),
        expert_(model.experts ? expert_mesh(layout) : dense_mesh(layout)) {
    WiringSignatures signatures(cluster_);
    for (const GroupKind kind : group_kinds()) {
      if (!has_groups(kind, layout_, model)) {
        GroupTable empty;
        empty.kind = kind;
        empty.group_of.assign(dense_.size(), -1);
        empty.view_of = empty.group_of;
        tables_.push_back(std::move(empty));
      } else {
        tables_.push_back(make_table(kind, cluster_, layout_, model, dense_, expert_, signatures));
      }
    }
    start();
    while (refine()) {
    }
  }

  RankClasses result() const;

 private:
  ClassGroup group_in(const GroupTable& table, Rank rank, const RankClasses& found) const;
  void add_links(RankClasses& found) const;
  void count_ranks_on_links(RankClasses& found) const;
  std::size_t ranks() const { return static_cast<std::size_t>(dense_.size()); }

  void start() {
    rank_.resize(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const Rank rank = make_id<Rank>(r);
      Colour colour = mix(colour_of(cluster_.device(rank)), static_cast<Colour>(dense_.coordinate(Axis::pp, rank)));
      for (const GroupTable& table : tables_) colour = mix(colour, static_cast<Colour>(table.view_of[r] + 1));
      rank_[r] = colour;
    }
    for (const Link& link : cluster_.links()) {
      Colour colour = mix(static_cast<Colour>(link.level.value), hash_of(link.bandwidth.bytes_per_second));
      colour = mix(colour, static_cast<Colour>(link.latency.value));
      colour = mix(colour, static_cast<Colour>(link.burst.value));
      link_.push_back(mix(colour, static_cast<Colour>(link.duplex)));
    }
  }

  // Does one round. Returns true while it distinguished more ranks or links. Sums of mixed colours are hashes of
  // multisets.
  bool refine() {
    std::vector<Colour> next_link = link_;
    std::vector<Colour> next_rank = rank_;
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t level = 0; level < cluster_.level_count(); ++level) {
        const LinkId link = cluster_.link_of(make_id<LevelId>(level), make_id<Rank>(r));
        next_link[link.index()] += mix(rank_[r], 7);
        next_rank[r] = mix(next_rank[r], link_[link.index()]);
      }
    }
    for (const GroupTable& table : tables_) {
      std::vector<Colour> of_group(table.groups.size(), 0);
      for (std::size_t g = 0; g < table.groups.size(); ++g) {
        for (const Rank member : table.groups[g]) of_group[g] += mix(rank_[member.index()], 11);
      }
      for (std::size_t r = 0; r < ranks(); ++r) {
        if (table.group_of[r] >= 0) next_rank[r] = mix(next_rank[r], of_group[table.group_of[r]]);
      }
    }
    const std::size_t before = distinct(rank_) + distinct(link_);
    rank_ = std::move(next_rank);
    link_ = std::move(next_link);
    return distinct(rank_) + distinct(link_) > before;
  }

  static std::size_t distinct(const std::vector<Colour>& colours) {
    return std::unordered_set<Colour>(colours.begin(), colours.end()).size();
  }

  const Cluster& cluster_;
  const Layout& layout_;
  Mesh dense_, expert_;
  std::vector<GroupTable> tables_;
  std::vector<Colour> rank_, link_;
};

// "node 3", "nodes 0-2,4"; "" where that is a long list.
std::string in_words(const std::set<NodeId>& nodes) {
  constexpr int kMaxRanges = 3;
  std::string text;
  int ranges = 0;
  for (auto first = nodes.begin(); first != nodes.end() && ranges <= kMaxRanges; ++ranges) {
    auto last = first;
    while (std::next(last) != nodes.end() && std::next(last)->value == last->value + 1) ++last;
    text += fmt::format("{}{}", ranges > 0 ? "," : "", first->value);
    if (last != first) text += fmt::format("-{}", last->value);
    first = std::next(last);
  }
  return ranges > kMaxRanges ? "" : (nodes.size() == 1 ? "node " : "nodes ") + text;
}

// Names a class by its stage. Where a stage has several classes on nodes of their own, the nodes are named too: "stage
// 0 on node 3" is the slow node that somebody looks for. Other classes of a stage get letters.
void name_classes(RankClasses& found, const Cluster& cluster) {
  std::vector<std::set<NodeId>> nodes(found.classes.size());
  for (std::size_t r = 0; r < found.class_of.size(); ++r) {
    nodes[found.class_of[r]].insert(cluster.node_of(make_id<Rank>(r)));
  }
  struct Stage {
    std::int64_t classes = 0, named = 0;
    std::map<NodeId, int> classes_on;
  };
  std::map<std::int64_t, Stage> stages;
  for (std::size_t c = 0; c < nodes.size(); ++c) {
    Stage& stage = stages[found.classes[c].stage];
    ++stage.classes;
    for (const NodeId node : nodes[c]) ++stage.classes_on[node];
  }
  for (std::size_t c = 0; c < nodes.size(); ++c) {
    RankClass& named = found.classes[c];
    Stage& stage = stages[named.stage];
    named.name = fmt::format("stage {}", named.stage);
    if (stage.classes == 1) continue;
    const bool alone = std::all_of(stage.classes_on.begin(), stage.classes_on.end(),
                                   [](const auto& on_node) { return on_node.second == 1; });
    const std::string place = alone ? in_words(nodes[c]) : "";
    const std::int64_t number = stage.named++;
    if (!place.empty()) {
      named.name += " on " + place;
      continue;
    }
    named.name += static_cast<char>('a' + number % 26);
    if (stage.classes > 26) named.name += fmt::format("{}", number + 1);
  }
}

ClassGroup Refinement::group_in(const GroupTable& table, Rank rank, const RankClasses& found) const {
  ClassGroup group;
  const std::int32_t g = table.group_of[rank.index()];
  if (g < 0) return group;
  group.view = table.views[table.view_of[rank.index()]];
  const std::vector<Rank>& members = table.groups[g];
  if (std::ssize(members) <= kListedMembers) group.ranks = members;
  std::set<ClassId> classes;
  for (const Rank member : members) classes.insert(ClassId{found.class_of[member.index()]});
  group.members.assign(classes.begin(), classes.end());
  add_levels(cluster_, members, rank, group);
  return group;
}

void Refinement::add_links(RankClasses& found) const {
  std::map<Colour, std::int32_t> link_class_of;
  std::map<LevelId, int> kinds_of_level;
  for (RankClass& c : found.classes) {
    for (std::size_t level = 0; level < cluster_.level_count(); ++level) {
      const auto id = make_id<LevelId>(level);
      const LinkId link = cluster_.link_of(id, c.representative);
      const auto [it, added] =
          link_class_of.try_emplace(link_[link.index()], static_cast<std::int32_t>(found.links.size()));
      if (added) {
        const int kind = kinds_of_level[id]++;
        found.links.push_back(
            {cluster_.links()[link.index()],
             kind == 0 ? cluster_.level_name(id) : fmt::format("{}#{}", cluster_.level_name(id), kind)});
      }
      c.links.push_back({it->second, 0});
    }
  }
}

// Counts the ranks of the representative's class on the representative's own link.
void Refinement::count_ranks_on_links(RankClasses& found) const {
  for (std::size_t level = 0; level < cluster_.level_count(); ++level) {
    const auto link_of = [&](Rank rank) { return cluster_.link_of(make_id<LevelId>(level), rank); };
    std::map<LinkId, std::map<std::int32_t, std::int64_t>> on_link;
    for (const RankClass& c : found.classes) on_link[link_of(c.representative)];
    for (std::size_t r = 0; r < ranks(); ++r) {
      const auto it = on_link.find(link_of(make_id<Rank>(r)));
      if (it != on_link.end()) ++it->second[found.class_of[r]];
    }
    for (std::size_t c = 0; c < found.classes.size(); ++c) {
      RankClass& rank_class = found.classes[c];
      rank_class.links[level].ranks_on_link = on_link[link_of(rank_class.representative)][static_cast<std::int32_t>(c)];
    }
  }
}

RankClasses Refinement::result() const {
  RankClasses result;
  std::map<Colour, std::int32_t> class_of_colour;
  result.class_of.resize(ranks());
  for (std::size_t r = 0; r < ranks(); ++r) {
    const auto [it, added] = class_of_colour.try_emplace(rank_[r], static_cast<std::int32_t>(result.classes.size()));
    if (added) {
      RankClass c;
      c.representative = make_id<Rank>(r);
      c.stage = dense_.coordinate(Axis::pp, c.representative);
      c.device = cluster_.device(c.representative);
      result.classes.push_back(std::move(c));
    }
    result.class_of[r] = it->second;
    ++result.classes[it->second].ranks;
  }
  name_classes(result, cluster_);
  for (RankClass& c : result.classes) {
    for (const GroupTable& table : tables_) c.groups.push_back(group_in(table, c.representative, result));
  }
  add_links(result);
  count_ranks_on_links(result);
  return result;
}

}  // namespace

ModelGroups model_groups(const Transformer& model, const Layout& layout) {
  return {model.experts.has_value(), std::max<std::int64_t>(1, layout.tp / model.kv_heads)};
}

std::vector<Rank> group_members(const Layout& layout, const ModelGroups& model, GroupKind kind, Rank rank) {
  if (!has_groups(kind, layout, model)) return {};
  const Mesh dense = dense_mesh(layout);
  const std::int64_t stage = dense.coordinate(Axis::pp, rank);
  if (kind == GroupKind::pp_next) return {rank, dense.neighbour(rank, Axis::pp, (stage + 1) % layout.pp)};
  if (kind == GroupKind::pp_prev) return {rank, dense.neighbour(rank, Axis::pp, (stage + layout.pp - 1) % layout.pp)};
  if (kind == GroupKind::tied) {
    const std::int64_t from_its_end = std::min(stage, layout.pp - 1 - stage);
    if (!has_tied_groups(layout) || (layout.directions() == 1 && from_its_end != 0)) return {};
    return {dense.neighbour(rank, Axis::pp, from_its_end),
            dense.neighbour(rank, Axis::pp, layout.pp - 1 - from_its_end)};
  }
  if (kind == GroupKind::kv) {
    return with_same_head(dense.group(rank, {Axis::tp}), model.key_copies, dense.coordinate(Axis::tp, rank));
  }
  std::vector<Rank> members = (is_of_experts(kind) ? expert_mesh(layout) : dense).group(rank, axes_of(kind, layout));
  if (!is_divided_by_shards(kind, layout)) return members;
  const auto number = [&](Rank member) { return group_by_shards(kind, layout, dense, member); };
  std::erase_if(members, [&, own = number(rank)](Rank member) { return number(member) != own; });
  return members;
}

RankClasses find_rank_classes(const Cluster& cluster, const Layout& layout, const ModelGroups& model) {
  WEFT_CHECK(cluster.device_count() == layout.devices());
  return Refinement(cluster, layout, model).result();
}

}  // namespace weft
