// Groups and coordinates against brute-force enumeration.
#include "cluster/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace weft {
namespace {

const std::vector<Axis> kAllAxes{Axis::tp, Axis::cp, Axis::dp, Axis::pp, Axis::etp, Axis::ep, Axis::edp};

Rank rank(std::int64_t n) {
  return make_id<Rank>(n);
}

using Coordinates = std::map<Axis, std::int64_t>;

// The oracle: an odometer whose first wheel turns fastest.
std::vector<Coordinates> enumerate(const std::vector<Mesh::Extent>& order) {
  std::vector<Coordinates> all;
  Coordinates now;
  for (const auto& extent : order) now[extent.axis] = 0;
  while (true) {
    all.push_back(now);
    std::size_t wheel = 0;
    while (wheel < order.size() && ++now[order[wheel].axis] == order[wheel].size) now[order[wheel++].axis] = 0;
    if (wheel == order.size()) return all;
  }
}

std::vector<Rank> brute_force_group(const std::vector<Coordinates>& all, std::size_t self,
                                    const std::vector<Axis>& axes) {
  std::vector<Rank> members;
  for (std::size_t other = 0; other < all.size(); ++other) {
    const bool same_elsewhere = std::all_of(all[self].begin(), all[self].end(), [&](const auto& entry) {
      const bool free = std::find(axes.begin(), axes.end(), entry.first) != axes.end();
      return free || all[other].at(entry.first) == entry.second;
    });
    if (same_elsewhere) members.push_back(make_id<Rank>(other));
  }
  return members;
}

// Every order of four axes, extents with ones and primes among them, every subset of axes.
TEST(Mesh, GroupsAndCoordinatesEqualBruteForceInEveryOrder) {
  std::vector<Mesh::Extent> order{{Axis::tp, 2}, {Axis::cp, 1}, {Axis::dp, 3}, {Axis::pp, 2}};
  const auto by_axis = [](const Mesh::Extent& a, const Mesh::Extent& b) { return a.axis < b.axis; };
  do {
    const Mesh mesh(order);
    const std::vector<Coordinates> all = enumerate(order);
    ASSERT_EQ(mesh.size(), static_cast<std::int64_t>(all.size()));
    for (std::size_t self = 0; self < all.size(); ++self) {
      for (const auto& [axis, coordinate] : all[self]) {
        EXPECT_EQ(mesh.coordinate(axis, make_id<Rank>(self)), coordinate);
      }
      for (unsigned subset = 0; subset < 16; ++subset) {
        std::vector<Axis> axes;
        for (unsigned bit = 0; bit < 4; ++bit) {
          if ((subset >> bit & 1U) != 0) axes.push_back(kAllAxes[bit]);
        }
        EXPECT_EQ(mesh.group(make_id<Rank>(self), axes), brute_force_group(all, self, axes));
        std::reverse(axes.begin(), axes.end());
        EXPECT_EQ(mesh.group(make_id<Rank>(self), axes), brute_force_group(all, self, axes));
      }
    }
  } while (std::next_permutation(order.begin(), order.end(), by_axis));
}

TEST(Mesh, ANeighbourDiffersInTheNamedAxisOnly) {
  const Mesh mesh({{Axis::tp, 2}, {Axis::dp, 3}, {Axis::pp, 2}});
  for (std::int64_t self = 0; self < mesh.size(); ++self) {
    for (const Axis axis : kAllAxes) {
      for (std::int64_t to = 0; to < mesh.extent(axis); ++to) {
        const Rank other = mesh.neighbour(rank(self), axis, to);
        for (const Axis any : kAllAxes) {
          EXPECT_EQ(mesh.coordinate(any, other), any == axis ? to : mesh.coordinate(any, rank(self)));
        }
      }
    }
  }
}

// Megatron's documentation, 16 GPUs, tp 2, pp 4, order tp-dp-pp: tensor groups [g0, g1] ...,
// data groups [g0, g2], [g1, g3] ..., pipeline groups [g0, g4, g8, g12] ...
TEST(Mesh, MatchesMegatronsSixteenDeviceExample) {
  const Mesh mesh({{Axis::tp, 2}, {Axis::cp, 1}, {Axis::dp, 2}, {Axis::pp, 4}});
  EXPECT_EQ(mesh.group(rank(1), {Axis::tp}), (std::vector<Rank>{{0}, {1}}));
  EXPECT_EQ(mesh.group(rank(3), {Axis::dp}), (std::vector<Rank>{{1}, {3}}));
  EXPECT_EQ(mesh.group(rank(7), {Axis::pp}), (std::vector<Rank>{{3}, {7}, {11}, {15}}));
}

TEST(Mesh, AnAxisThatIsNotThereHasExtentOneAndMakesNoGroup) {
  const Mesh mesh({{Axis::dp, 4}});
  EXPECT_EQ(mesh.extent(Axis::ep), 1);
  EXPECT_EQ(mesh.coordinate(Axis::ep, rank(3)), 0);
  EXPECT_EQ(mesh.group(rank(3), {Axis::ep}), (std::vector<Rank>{{3}}));
  EXPECT_EQ(mesh.neighbour(rank(3), Axis::ep, 0), rank(3));
  EXPECT_EQ(Mesh({}).size(), 1);
}

TEST(Mesh, RejectsSizesBelowOneAxesNamedTwiceAndTooManyRanks) {
  EXPECT_THROW(Mesh({{Axis::tp, 0}}), Error);
  EXPECT_THROW(Mesh({{Axis::tp, -2}}), Error);
  EXPECT_THROW(Mesh({{Axis::tp, 2}, {Axis::tp, 2}}), Error);
  EXPECT_THROW(Mesh({{Axis::tp, 65536}, {Axis::dp, 65536}}), Error);
  EXPECT_THROW(Mesh({{Axis::tp, std::int64_t{1} << 40}, {Axis::dp, std::int64_t{1} << 40}}), Error);
}

TEST(MeshOrder, NamesEachAxisOnceInnermostFirst) {
  EXPECT_EQ(parse_mesh_order("tp,cp,dp,pp"), (std::vector<Axis>{Axis::tp, Axis::cp, Axis::dp, Axis::pp}));
  EXPECT_EQ(parse_mesh_order("pp,dp,tp,cp"), (std::vector<Axis>{Axis::pp, Axis::dp, Axis::tp, Axis::cp}));
  for (const char* bad :
       {"", "tp", "tp,cp,dp", "tp,cp,dp,pp,tp", "tp,tp,dp,pp", "tp,cp,dp,ep", "tp, cp,dp,pp", "tp,cp,dp,pp,"}) {
    EXPECT_THROW(parse_mesh_order(bad), Error) << bad;
  }
}

}  // namespace
}  // namespace weft
