// The rules by which a transfer may be carried out in legs: which sequences of collectives have the effect of another
// collective.
//
// A group of N = outer x inner ranks has two levels: rank o inner + i is place i of inner group o. The inner group o is
// all its places (ranks that share a node); the outer group i is place i of all inner groups. A leg is a collective
// of the whole group, of all inner groups side by side, or of all outer groups.
//
// Outer groups may have two levels again (nodes below one switch, and switches): the middle groups are their inner
// groups, the top groups their outer ones. With N = top x middle x inner, rank (t middle + m) inner + i is place i of
// inner group m of the t-th part of the cluster.
//
// A rule is data, and it is proven: its legs are written as one program, which the program verifier must accept as the
// rule's collective.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/program.hpp"

namespace weft {

// `self` is a rank alone, which reduces what it has received.
enum class Scope : std::uint8_t { whole, inner, outer, middle, top, self };
std::string_view name_of(Scope scope);

// How many members an inner group has, and a middle one; 1 of them: groups have no more than two levels. 0 of an inner
// group: a group's own levels (graph/rank_classes.hpp).
struct LevelSizes {
  constexpr LevelSizes(std::int64_t of_inner = 1, std::int64_t of_middle = 1) : inner(of_inner), middle(of_middle) {}
  std::int64_t inner, middle;
  friend auto operator<=>(const LevelSizes&, const LevelSizes&) = default;
};
inline constexpr LevelSizes kOwnLevels{0, 0};

struct RuleLeg {
  Collective collective = Collective::all_reduce;
  Scope scope = Scope::whole;
  // Whether broadcast or send_recv runs once for every member, from it to the others. Otherwise the first member is the
  // root.
  bool from_every_member = false;
  friend bool operator==(const RuleLeg&, const RuleLeg&) = default;
};

enum class Substitution : std::uint8_t {
  none,
  all_reduce_in_halves,
  all_reduce_in_levels,
  reduce_scatter_in_levels,
  all_gather_in_levels,
  all_to_all_in_levels,
  all_reduce_at_root,
  reduce_scatter_by_exchange,
  all_gather_by_broadcasts,
  all_gather_by_sends,
  all_to_all_by_sends,
  all_reduce_in_three_levels,
  reduce_scatter_in_three_levels,
  all_gather_in_three_levels,
  all_to_all_in_three_levels
};
inline constexpr Substitution kLastSubstitution = Substitution::all_to_all_in_three_levels;
std::string_view name_of(Substitution substitution);

// "inner"; of levels that are not a group's own with their sizes: "middle of 2x4".
std::string in_words(Scope scope, LevelSizes levels);

// By which rule a transfer is carried out, and in which levels of its group.
struct TransferRule {
  constexpr TransferRule(Substitution by = Substitution::none, LevelSizes in = kOwnLevels) : rule(by), levels(in) {}
  Substitution rule;
  LevelSizes levels;
  friend bool operator==(const TransferRule&, const TransferRule&) = default;
};

// "all_gather_in_levels", with the sizes of levels that are not a group's own: "all_gather_in_levels of 2".
std::string in_words(const TransferRule& rule);

struct SubstitutionRule {
  Substitution name = Substitution::none;
  Collective collective = Collective::all_reduce;
  std::vector<RuleLeg> legs;  // each works on what the one before it leaves
};

// Every rule but `none`.
const std::vector<SubstitutionRule>& substitution_rules();
const SubstitutionRule& rule_of(Substitution substitution);
// Whether it needs groups of two levels, or of three.
bool has_levels(const SubstitutionRule& rule);
bool has_three_levels(const SubstitutionRule& rule);

// Returns the legs as one program of `collective`; the levels divide `ranks`. Returns nothing where the ranks do not
// hold what a leg works on: a reduction needs the same pieces at all members, a gather different ones, an all_to_all
// equally much for each. The outer groups of all_reduce reduce consecutive pieces of the buffer, as the transfers of a
// step do; other collectives keep the order of the ranks.
std::optional<Program> composed_program(Collective collective, std::span<const RuleLeg> legs, std::int64_t ranks,
                                        LevelSizes levels);

// Rules for groups of more ranks than this are proven on a smaller group.
inline constexpr std::int64_t kMaxProvenRanks = 64;

// Returns whether the verifier accepts the rule's legs as its collective. In a group of more than kMaxProvenRanks each
// level is cut down to at most 8 members (8 ranks for a rule without levels, 4 members for one with three). What a rank
// does in a leg depends only on its coordinates and those of the piece, and no two coordinates above the first are
// treated differently, so what holds for so many holds for more.
bool holds(const SubstitutionRule& rule, std::int64_t ranks, LevelSizes levels);

}  // namespace weft
