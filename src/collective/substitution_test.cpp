#include "collective/substitution.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

constexpr std::int64_t kRanks[] = {2, 3, 4, 5, 6, 8, 12, 16};

template <class Visit>
void for_each_shape(const Visit& visit) {
  for (const std::int64_t ranks : kRanks) {
    for (std::int64_t inner = 1; inner <= ranks; ++inner) {
      if (ranks % inner == 0) visit(ranks, inner);
    }
  }
}

// Why the legs are not the collective; empty where they are.
std::string fault(const SubstitutionRule& rule, std::int64_t ranks, std::int64_t inner) {
  const std::optional<Program> program = composed_program(rule.collective, rule.legs, ranks, inner);
  return program ? verify_program(*program).words() : "a stage does not find what it works on";
}

TEST(Substitution, EveryRuleIsProvenForEveryShapeOfAGroup) {
  EXPECT_EQ(substitution_rules().size(), 14U);
  for (const SubstitutionRule& rule : substitution_rules()) {
    for_each_shape([&](std::int64_t ranks, std::int64_t inner) {
      EXPECT_EQ(fault(rule, ranks, inner), "") << name_of(rule.name) << " of " << ranks << " with inner " << inner;
      EXPECT_TRUE(holds(rule, ranks, inner));
    });
  }
}

TEST(Substitution, AGroupOfOneRankKeepsWhatItHas) {
  for (const SubstitutionRule& rule : substitution_rules()) EXPECT_TRUE(holds(rule, 1, 1)) << name_of(rule.name);
}

// Every leg moves something where no level has a single member, so none can be spared.
TEST(Substitution, WithoutOneOfItsStagesNoRuleHolds) {
  for (const SubstitutionRule& rule : substitution_rules()) {
    if (has_three_levels(rule)) continue;
    for_each_shape([&](std::int64_t ranks, std::int64_t inner) {
      if (has_levels(rule) && (inner == 1 || inner == ranks)) return;
      for (std::size_t left_out = 0; left_out < rule.legs.size(); ++left_out) {
        SubstitutionRule wrong = rule;
        wrong.legs.erase(wrong.legs.begin() + static_cast<std::ptrdiff_t>(left_out));
        EXPECT_FALSE(holds(wrong, ranks, inner))
            << name_of(rule.name) << " of " << ranks << " with inner " << inner << " without stage " << left_out;
      }
    });
  }
}

TEST(Substitution, InAnotherScopeAStageBreaksItsRule) {
  for (const SubstitutionRule& rule : substitution_rules()) {
    if (has_three_levels(rule)) continue;
    for_each_shape([&](std::int64_t ranks, std::int64_t inner) {
      if (inner == 1 || inner == ranks) return;
      for (std::size_t at = 0; at < rule.legs.size(); ++at) {
        for (const Scope scope : {Scope::whole, Scope::inner, Scope::outer, Scope::self}) {
          if (scope == rule.legs[at].scope) continue;
          SubstitutionRule wrong = rule;
          wrong.legs[at].scope = scope;
          EXPECT_FALSE(holds(wrong, ranks, inner)) << name_of(rule.name) << " of " << ranks << " with inner " << inner
                                                   << ", stage " << at << " in scope " << name_of(scope);
        }
      }
    });
  }
}

// The two levels of reduce_scatter, all_gather and all_to_all may come in either order: coordinates are independent.
// The legs of the others build on each other.
TEST(Substitution, BackToFrontOnlyIndependentStagesHold) {
  for (const SubstitutionRule& rule : substitution_rules()) {
    if (has_three_levels(rule)) continue;
    if (rule.legs.size() < 2) continue;
    const bool independent = rule.name == Substitution::reduce_scatter_in_levels ||
                             rule.name == Substitution::all_gather_in_levels ||
                             rule.name == Substitution::all_to_all_in_levels;
    for_each_shape([&](std::int64_t ranks, std::int64_t inner) {
      if (inner == 1 || inner == ranks) return;
      SubstitutionRule other = rule;
      std::reverse(other.legs.begin(), other.legs.end());
      EXPECT_EQ(holds(other, ranks, inner), independent) << name_of(rule.name) << " of " << ranks << " and " << inner;
    });
  }
}

TEST(Substitution, AnotherCollectiveInAStageBreaksItsRule) {
  const std::vector<RuleLeg> no_sum{{Collective::all_gather, Scope::whole}, {Collective::all_gather, Scope::whole}};
  EXPECT_FALSE(holds({Substitution::all_reduce_in_halves, Collective::all_reduce, no_sum}, 4, 2));
  const std::vector<RuleLeg> gathered{{Collective::broadcast, Scope::whole}};  // of the first member's share only
  EXPECT_FALSE(holds({Substitution::all_gather_by_broadcasts, Collective::all_gather, gathered}, 4, 2));
}

TEST(Substitution, LargeGroupsAreProvenByTheirShapeCutDown) {
  for (const SubstitutionRule& rule : substitution_rules()) {
    EXPECT_TRUE(holds(rule, 64, 8)) << name_of(rule.name);
    EXPECT_TRUE(holds(rule, 4096, 8)) << name_of(rule.name);
  }
  SubstitutionRule wrong = rule_of(Substitution::reduce_scatter_in_levels);
  wrong.legs.pop_back();
  EXPECT_FALSE(holds(wrong, 4096, 8));
  EXPECT_FALSE(holds(rule_of(Substitution::all_reduce_in_levels), 12, 5));  // 5 does not divide 12
}

// Shapes of three levels, none of them of a single member.
template <class Visit>
void for_each_shape_of_three(const Visit& visit) {
  for (const SubstitutionRule& rule : substitution_rules()) {
    if (!has_three_levels(rule)) continue;
    for (const std::int64_t inner : {2, 3}) {
      for (const std::int64_t middle : {2, 3}) {
        for (const std::int64_t top : {2, 3}) visit(rule, inner * middle * top, LevelSizes(inner, middle));
      }
    }
  }
}

TEST(Substitution, RulesOfThreeLevelsHoldForEveryShape) {
  int rules = 0;
  for_each_shape_of_three([&](const SubstitutionRule& rule, std::int64_t ranks, LevelSizes levels) {
    ++rules;
    EXPECT_TRUE(holds(rule, ranks, levels)) << name_of(rule.name) << " of " << ranks;
  });
  EXPECT_EQ(rules, 4 * 8);
  EXPECT_TRUE(holds(rule_of(Substitution::all_reduce_in_three_levels), 16384, {8, 32}));
  EXPECT_FALSE(holds(rule_of(Substitution::all_reduce_in_three_levels), 24, {4, 4}));
}

TEST(Substitution, RulesOfThreeLevelsNeedEveryStageInItsScope) {
  for_each_shape_of_three([&](const SubstitutionRule& rule, std::int64_t ranks, LevelSizes levels) {
    for (std::size_t at = 0; at < rule.legs.size(); ++at) {
      SubstitutionRule without = rule;
      without.legs.erase(without.legs.begin() + static_cast<std::ptrdiff_t>(at));
      EXPECT_FALSE(holds(without, ranks, levels)) << name_of(rule.name) << " without stage " << at;
      for (const Scope scope : {Scope::whole, Scope::inner, Scope::outer, Scope::middle, Scope::top, Scope::self}) {
        if (scope == rule.legs[at].scope) continue;
        SubstitutionRule wrong = rule;
        wrong.legs[at].scope = scope;
        EXPECT_FALSE(holds(wrong, ranks, levels))
            << name_of(rule.name) << ", stage " << at << " in scope " << name_of(scope);
      }
    }
  });
}

}  // namespace
}  // namespace weft
