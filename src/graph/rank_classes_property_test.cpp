// On random small clusters and layouts: two ranks of one class cannot be told apart, by the definition read literally.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "graph/rank_classes.hpp"
#include "graph/test_graphs.hpp"

namespace weft {
namespace {

class RandomCase {
 public:
  explicit RandomCase(unsigned seed) : random_(seed) {}

  std::int64_t pick(std::initializer_list<std::int64_t> choices) {
    return *(choices.begin() + std::uniform_int_distribution<std::ptrdiff_t>(
                                   0, static_cast<std::ptrdiff_t>(choices.size()) - 1)(random_));
  }

  ClusterSpec cluster() {
    ClusterSpec spec = parse_cluster(fmt::format("{}:{},gpus={}", pick({0, 1}) == 0 ? "dgx-a100" : "p3dn",
                                                 pick({1, 2, 3, 4}), pick({1, 2, 3, 4, 6, 8})));
    for (std::int64_t node = 0; node < spec.nodes; ++node) {
      NodeOverride change;
      change.node = node;
      if (pick({0, 1, 1}) == 0) {
        change.level = "nic";
        change.bandwidth = Bandwidth{static_cast<double>(pick({1, 2})) * 1e9};
      }
      if (pick({0, 1, 1}) == 0) {
        change.device = spec.device;
        change.device->memory_bandwidth = Bandwidth{1e11};
      }
      if (change.bandwidth || change.device) spec.overrides.push_back(change);
    }
    return spec;
  }

  Layout layout(std::int64_t devices) {
    Layout l;
    std::int64_t left = devices;
    for (std::int64_t* degree : {&l.tp, &l.pp, &l.cp}) {
      const std::int64_t wanted = pick({1, 1, 2, 3, 4});
      if (left % wanted == 0) {
        *degree = wanted;
        left /= wanted;
      }
    }
    l.dp = left;
    std::shuffle(l.mesh_order.begin(), l.mesh_order.end(), random_);
    l.zero = static_cast<int>(pick({0, 1}));
    const std::int64_t shards = pick({0, 0, 1, 2, 3});
    if (l.zero > 0 && shards > 0 && (l.dp * l.cp) % shards == 0) l.zero_shards = shards;
    return l;
  }

 private:
  std::mt19937 random_;
};

// Of ranks that may hold shards of each other's parameters, those in the same place, or those of the same set of
// shards.
std::vector<Rank> divided(const Mesh& mesh, const Layout& layout, std::vector<Rank> members, bool same_place,
                          Rank rank) {
  const auto number = [&](Rank member) {
    const std::vector<Rank> all = mesh.group(member, {Axis::dp, Axis::cp});
    const std::int64_t place = std::find(all.begin(), all.end(), member) - all.begin();
    return same_place ? place % layout.zero_shards : place / layout.zero_shards;
  };
  std::erase_if(members, [&](Rank member) { return number(member) != number(rank); });
  return members;
}

// The groups of every kind that a dense model has, by the rank that sees them.
std::vector<Rank> group_of(const Mesh& mesh, const Layout& layout, std::int64_t copies, GroupKind kind, Rank rank) {
  const std::int64_t stage = mesh.coordinate(Axis::pp, rank);
  if (kind == GroupKind::tp) return mesh.group(rank, {Axis::tp});
  if (kind == GroupKind::cp) return mesh.group(rank, {Axis::cp});
  if (kind == GroupKind::dp) return mesh.group(rank, {Axis::dp, Axis::cp});
  const bool two_levels = layout.zero_shards > 0 && layout.zero_shards < layout.dp * layout.cp;
  if (kind == GroupKind::shard || kind == GroupKind::replica) {
    if (!two_levels) return {};
    return divided(mesh, layout, mesh.group(rank, {Axis::dp, Axis::cp}), kind == GroupKind::replica, rank);
  }
  if (kind == GroupKind::norm && two_levels) {
    return divided(mesh, layout, mesh.group(rank, {Axis::tp, Axis::cp, Axis::dp, Axis::pp}), false, rank);
  }
  if (kind == GroupKind::norm) {
    return layout.zero > 0 ? mesh.group(rank, {Axis::tp, Axis::cp, Axis::dp, Axis::pp})
                           : mesh.group(rank, {Axis::tp, Axis::pp});
  }
  if (kind == GroupKind::tied) {
    if (stage != 0 && stage != layout.pp - 1) return {};
    return {mesh.neighbour(rank, Axis::pp, 0), mesh.neighbour(rank, Axis::pp, layout.pp - 1)};
  }
  if (kind == GroupKind::pp_next) return {rank, mesh.neighbour(rank, Axis::pp, (stage + 1) % layout.pp)};
  if (kind == GroupKind::pp_prev) return {rank, mesh.neighbour(rank, Axis::pp, (stage + layout.pp - 1) % layout.pp)};
  if (kind != GroupKind::kv || copies == 1) return {};
  const auto head = [&](Rank r) { return mesh.coordinate(Axis::tp, r) / copies; };
  std::vector<Rank> members = mesh.group(rank, {Axis::tp});
  std::erase_if(members, [&](Rank member) { return head(member) != head(rank); });
  return members;
}

struct Seen {
  std::int64_t stage;
  Device device;
  std::vector<GroupView> views;
  std::vector<std::multiset<std::int32_t>> peers;
  std::vector<Link> links;
  std::vector<std::map<std::int32_t, std::int64_t>> ranks_on_link;  // by level: how many of each class
  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen seen_by(const Cluster& cluster, const Layout& layout, std::int64_t copies, const RankClasses& classes, Rank rank) {
  const Mesh mesh = dense_mesh(layout);
  Seen seen{mesh.coordinate(Axis::pp, rank), cluster.device(rank), {}, {}, {}, {}};
  for (const GroupKind kind : group_kinds()) {
    const bool needs_stages = kind == GroupKind::tied || kind == GroupKind::pp_next || kind == GroupKind::pp_prev;
    if (needs_stages && layout.pp == 1) continue;
    const std::vector<Rank> members = group_of(mesh, layout, copies, kind, rank);
    if (members.empty()) continue;
    const std::vector<GroupView> views = group_views(cluster, members);
    const auto self = std::find(members.begin(), members.end(), rank) - members.begin();
    seen.views.push_back(views[self]);
    std::multiset<std::int32_t>& peers = seen.peers.emplace_back();
    for (const Rank member : members) peers.insert(classes.class_of[member.index()]);
    // What the class says is what the rank sees.
    const RankClass& own = classes.classes[classes.class_of[rank.index()]];
    EXPECT_EQ(own.group(kind).view, seen.views.back()) << name_of(kind);
    std::vector<ClassId> distinct;
    for (const std::int32_t c : std::set<std::int32_t>(peers.begin(), peers.end())) distinct.push_back(ClassId{c});
    EXPECT_EQ(own.group(kind).members, distinct) << name_of(kind);
  }
  for (std::size_t level = 0; level < cluster.level_count(); ++level) {
    const LinkId link = cluster.link_of(make_id<LevelId>(level), rank);
    seen.links.push_back(cluster.links()[link.index()]);
    auto& on_link = seen.ranks_on_link.emplace_back();
    for (std::size_t other = 0; other < classes.class_of.size(); ++other) {
      if (cluster.link_of(make_id<LevelId>(level), make_id<Rank>(other)) == link) ++on_link[classes.class_of[other]];
    }
  }
  return seen;
}

TEST(RankClassesProperty, RanksOfOneClassSeeTheSame) {
  std::size_t split = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    RandomCase random(seed);
    const Cluster cluster(random.cluster());
    const Layout layout = random.layout(cluster.device_count());
    const std::int64_t copies = seed % 2 == 0 && layout.tp % 2 == 0 ? layout.tp / 2 : 1;
    const RankClasses found = find_rank_classes(cluster, layout, {.key_copies = copies});
    SCOPED_TRACE(fmt::format("seed {}: {} tp {} cp {} dp {} pp {}", seed, cluster.spec().name, layout.tp, layout.cp,
                             layout.dp, layout.pp));
    split += found.classes.size() > static_cast<std::size_t>(layout.pp) ? 1 : 0;
    std::vector<std::int64_t> ranks(found.classes.size(), 0);
    for (std::size_t r = 0; r < found.class_of.size(); ++r) {
      const std::size_t c = found.class_of[r];
      ++ranks[c];
      const RankClass& own = found.classes[c];
      const Seen seen = seen_by(cluster, layout, copies, found, make_id<Rank>(r));
      ASSERT_EQ(seen, seen_by(cluster, layout, copies, found, own.representative)) << "rank " << r;
      for (std::size_t level = 0; level < cluster.level_count(); ++level) {
        EXPECT_EQ(own.links[level].ranks_on_link, seen.ranks_on_link[level].at(found.class_of[r]));
        EXPECT_EQ(found.links[own.links[level].link_class].link, seen.links[level]);
      }
    }
    for (std::size_t c = 0; c < ranks.size(); ++c) EXPECT_EQ(found.classes[c].ranks, ranks[c]);
    if (HasFailure()) return;
  }
  EXPECT_GT(split, 30U);  // the cases are not all homogeneous
}

}  // namespace
}  // namespace weft
