#include "exec/leg_shares.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft {
namespace {

const Origin kWhole{OpId{0}, 0, 0, 1, 1};

// How often each element lies in the given stretches.
std::vector<int> counted(std::int64_t elements, const std::vector<ElementRange>& stretches) {
  std::vector<int> count(elements, 0);
  for (const ElementRange& stretch : stretches) {
    for (std::int64_t i = stretch.begin; i < stretch.end; ++i) ++count.at(i);
  }
  return count;
}

void append(std::vector<ElementRange>& all, const std::vector<ElementRange>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

constexpr Substitution kRules[] = {Substitution::all_reduce_in_halves, Substitution::all_reduce_in_levels,
                                   Substitution::reduce_scatter_in_levels, Substitution::all_gather_in_levels};

// Over all members of the whole or inner group and all parts, every element once.
TEST(LegShares, OfAllMembersAndPartsTileTheWhole) {
  for (const Substitution rule : kRules) {
    const Scope scope = rule == Substitution::all_reduce_in_halves ? Scope::whole : Scope::inner;
    for (const std::int64_t elements : {12, 13, 24, 100, 101}) {
      for (const std::int64_t parts : {1, 2, 3}) {
        const LegShares shares{.rule = rule, .scope = scope, .ranks = 6, .inner = 2, .position = 3};
        std::vector<ElementRange> all;
        for (std::int64_t p = 0; p < parts; ++p) {
          for (std::int64_t m = 0; m < (scope == Scope::whole ? 6 : 2); ++m) {
            append(all, shares.of_member(elements, {OpId{0}, 0, p, p + 1, parts}, m));
          }
        }
        EXPECT_EQ(counted(elements, all), std::vector<int>(static_cast<std::size_t>(elements), 1))
            << name_of(rule) << " of " << elements << " in " << parts;
      }
    }
  }
}

// What the outer groups share out is what the inner leg left at that place.
TEST(LegShares, OfOuterMembersAreTogetherTheShareOfTheirPlace) {
  for (const std::int64_t position : {0, 1, 4, 5}) {
    LegShares shares{.rule = Substitution::reduce_scatter_in_levels,
                     .scope = Scope::inner,
                     .ranks = 6,
                     .inner = 2,
                     .position = position};
    const std::vector<ElementRange> of_place = shares.of_member(100, kWhole, position % 2);
    shares.scope = Scope::outer;
    std::vector<ElementRange> together;
    for (std::int64_t m = 0; m < 3; ++m) append(together, shares.of_member(100, kWhole, m));
    EXPECT_EQ(counted(100, together), counted(100, of_place));
    // Its own is the shard that ZeRO gives it: 17 elements a rank, 15 for the last.
    const std::vector<ElementRange> own = shares.of_member(100, kWhole, position / 2);
    EXPECT_EQ(own, (std::vector<ElementRange>{{position * 17, std::min<std::int64_t>(100, position * 17 + 17)}}));
  }
}

TEST(LegShares, BetweenTheLevelsLieBehindEachOther) {
  // 100 elements over 6 ranks: shards of 17. Place 1 of 2 has those of ranks 1, 3 and 5; the last has 15.
  const LegShares shares{
      .rule = Substitution::reduce_scatter_in_levels, .scope = Scope::inner, .ranks = 6, .inner = 2, .position = 3};
  EXPECT_EQ(shares.between(100, 1), (std::vector<ElementRange>{{0, 17}, {17, 34}, {34, 49}}));
  LegShares outer = shares;
  outer.scope = Scope::outer;
  EXPECT_EQ(outer.of_member_between(100, 1, 2), (std::vector<ElementRange>{{34, 49}}));
}

TEST(LegShares, OfAnAllReduceAcrossGroupsAreTheSameForAllMembers) {
  const LegShares shares{
      .rule = Substitution::all_reduce_in_levels, .scope = Scope::outer, .ranks = 6, .inner = 2, .position = 5};
  EXPECT_EQ(shares.of_member(101, kWhole, 0), (std::vector<ElementRange>{{51, 101}}));
  EXPECT_EQ(shares.of_member(101, kWhole, 2), shares.of_member(101, kWhole, 0));
}

constexpr Substitution kThree[] = {Substitution::all_reduce_in_three_levels,
                                   Substitution::reduce_scatter_in_three_levels,
                                   Substitution::all_gather_in_three_levels};

// 12 ranks, rank (t 3 + m) 2 + i.
LegShares of_three(Substitution rule, Scope scope, std::int64_t position) {
  return {.rule = rule, .scope = scope, .ranks = 12, .inner = 2, .position = position, .middle = 3};
}

// Part by part, the members of a scope together have what one member has one level further in, each element once.
TEST(LegShares, OfThreeLevelsTileWhatTheLevelBelowLeft) {
  for (const Substitution rule : kThree) {
    for (const std::int64_t elements : {12, 13, 30, 100, 101}) {
      for (std::int64_t position = 0; position < 12; ++position) {
        for (const std::int64_t parts : {1, 2, 3}) {
          for (std::int64_t p = 0; p < parts; ++p) {
            const Origin part{OpId{0}, 0, p, p + 1, parts};
            const auto all_of = [&](Scope scope, std::int64_t members) {
              std::vector<ElementRange> all;
              for (std::int64_t m = 0; m < members; ++m) {
                append(all, of_three(rule, scope, position).of_member(elements, part, m));
              }
              return counted(elements, all);
            };
            const auto own = [&](Scope scope, std::int64_t member) {
              return counted(elements, of_three(rule, scope, position).of_member(elements, part, member));
            };
            EXPECT_EQ(all_of(Scope::middle, 3), own(Scope::inner, position % 2));
            if (rule == Substitution::all_reduce_in_three_levels) {
              EXPECT_EQ(own(Scope::top, 0), own(Scope::middle, position / 2 % 3));
              EXPECT_EQ(own(Scope::top, 1), own(Scope::top, 0));
            } else {
              EXPECT_EQ(all_of(Scope::top, 2), own(Scope::middle, position / 2 % 3));
            }
          }
          std::vector<ElementRange> whole;
          for (std::int64_t p = 0; p < parts; ++p) {
            for (std::int64_t m = 0; m < 2; ++m) {
              append(whole,
                     of_three(rule, Scope::inner, position).of_member(elements, {OpId{0}, 0, p, p + 1, parts}, m));
            }
          }
          EXPECT_EQ(counted(elements, whole), std::vector<int>(static_cast<std::size_t>(elements), 1));
        }
      }
    }
  }
}

// 100 elements over 12 ranks: shards of 9, the last has 1. Rank 5 is place 1 of inner group 2 of the first half: behind
// the first leg it has the shards of ranks 1, 3, 5, 7, 9 and 11, behind the second those of 5 and 11.
TEST(LegShares, BetweenThreeLevelsLieBehindEachOther) {
  const Substitution rule = Substitution::reduce_scatter_in_three_levels;
  const LegShares inner = of_three(rule, Scope::inner, 5), middle = of_three(rule, Scope::middle, 5);
  const LegShares top = of_three(rule, Scope::top, 5);
  EXPECT_EQ(inner.between(100, 1),
            (std::vector<ElementRange>{{0, 9}, {9, 18}, {18, 27}, {27, 36}, {36, 45}, {45, 46}}));
  EXPECT_EQ(middle.of_member_between(100, 1, 2), (std::vector<ElementRange>{{18, 27}, {45, 46}}));
  EXPECT_EQ(middle.between(100, 2), (std::vector<ElementRange>{{0, 9}, {9, 10}}));
  EXPECT_EQ(top.of_member_between(100, 2, 1), (std::vector<ElementRange>{{9, 10}}));
  EXPECT_EQ(inner.of_member_between(100, 0, 1), inner.of_member(100, kWhole, 1));
}

}  // namespace
}  // namespace weft
