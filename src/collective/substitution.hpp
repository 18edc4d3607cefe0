// Which sequences of collectives are another collective: the rules by which a transfer may be carried out in legs.
//
// A group of N = outer x inner ranks has two levels: rank o inner + i is place i of inner group o. The inner group o is
// all its places (ranks that share a node); the outer group i is place i of all inner groups. A leg is a collective
// of the whole group, of all inner groups side by side, or of all outer groups.
//
// A rule is data, and proven: its legs are written as one program, and the program verifier must accept that for the
// rule's collective.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/program.hpp"

namespace weft {

// `self`: a rank alone, which reduces what it has received.
enum class Scope : std::uint8_t { whole, inner, outer, self };
std::string_view name_of(Scope scope);

struct RuleLeg {
  Collective collective = Collective::all_reduce;
  Scope scope = Scope::whole;
  // broadcast, send_recv: once for every member, from it to the others. Otherwise the first member is the root.
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
  all_to_all_by_sends
};
std::string_view name_of(Substitution substitution);

struct SubstitutionRule {
  Substitution name = Substitution::none;
  Collective collective = Collective::all_reduce;
  std::vector<RuleLeg> legs;  // each works on what the one before it leaves
};

// Every rule but `none`.
const std::vector<SubstitutionRule>& substitution_rules();
const SubstitutionRule& rule_of(Substitution substitution);
// Whether it needs groups of two levels.
bool has_levels(const SubstitutionRule& rule);

// The rules read backwards: the collective that these legs together are, where nobody reads what lies between them.
std::optional<Collective> joined_collective(std::span<const RuleLeg> legs);

// The legs as one program of `collective`; `inner` divides `ranks`. Nothing where a leg does not find what it works
// on: a reduction the same pieces at all members, a gather other ones at each, an all_to_all as much for each. What
// all_reduce's outer groups reduce is one run of pieces of the buffer, as transfers of a step have it; other
// collectives keep the order of the ranks.
std::optional<Program> composed_program(Collective collective, std::span<const RuleLeg> legs, std::int64_t ranks,
                                        std::int64_t inner);

// Groups of more than this many ranks are proven by a smaller one.
inline constexpr std::int64_t kMaxProvenRanks = 64;

// Whether the verifier accepts the rule's legs as its collective. Of a group above kMaxProvenRanks each level is cut
// down to at most 8: what a rank does in a leg depends on nothing but its two coordinates and those of the piece, and
// no two coordinates above the first are treated differently, so what holds for 8 holds for more. A rule without levels
// is then proven for 8 ranks.
bool holds(const SubstitutionRule& rule, std::int64_t ranks, std::int64_t inner);

}  // namespace weft
