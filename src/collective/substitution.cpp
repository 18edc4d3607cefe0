#include "collective/substitution.hpp"

#include <algorithm>
#include <array>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxProvenMembersOfLevel = 8;  // members of a level that stand for more

}  // namespace

std::string_view name_of(Scope scope) {
  static constexpr std::array<std::string_view, 4> kNames = {"whole", "inner", "outer", "self"};
  return enum_name(kNames, scope);
}

std::string_view name_of(Substitution substitution) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"none", "all_reduce_in_halves", "all_reduce_in_levels", "reduce_scatter_in_levels", "all_gather_in_levels",
       "all_to_all_in_levels", "all_reduce_at_root", "reduce_scatter_by_exchange", "all_gather_by_broadcasts",
       "all_gather_by_sends", "all_to_all_by_sends"});
  return enum_name(kNames, substitution);
}

const std::vector<SubstitutionRule>& substitution_rules() {
  using enum Collective;
  using enum Scope;
  static const std::vector<SubstitutionRule> kRules = {
      {Substitution::all_reduce_in_halves, all_reduce, {{reduce_scatter, whole}, {all_gather, whole}}},
      {Substitution::all_reduce_in_levels,
       all_reduce,
       {{reduce_scatter, inner}, {all_reduce, outer}, {all_gather, inner}}},
      {Substitution::reduce_scatter_in_levels, reduce_scatter, {{reduce_scatter, inner}, {reduce_scatter, outer}}},
      {Substitution::all_gather_in_levels, all_gather, {{all_gather, outer}, {all_gather, inner}}},
      {Substitution::all_to_all_in_levels, all_to_all, {{all_to_all, inner}, {all_to_all, outer}}},
      {Substitution::all_reduce_at_root, all_reduce, {{reduce, whole}, {broadcast, whole}}},
      {Substitution::reduce_scatter_by_exchange, reduce_scatter, {{all_to_all, whole}, {reduce, self}}},
      {Substitution::all_gather_by_broadcasts, all_gather, {{broadcast, whole, true}}},
      {Substitution::all_gather_by_sends, all_gather, {{send_recv, whole, true}}},
      {Substitution::all_to_all_by_sends, all_to_all, {{send_recv, whole, true}}},
  };
  return kRules;
}

const SubstitutionRule& rule_of(Substitution substitution) {
  const std::vector<SubstitutionRule>& rules = substitution_rules();
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const SubstitutionRule& r) { return r.name == substitution; });
  WEFT_CHECK(found != rules.end());
  return *found;
}

bool has_levels(const SubstitutionRule& rule) {
  return std::any_of(rule.legs.begin(), rule.legs.end(),
                     [](const RuleLeg& s) { return s.scope == Scope::inner || s.scope == Scope::outer; });
}

bool holds(const SubstitutionRule& rule, std::int64_t ranks, std::int64_t inner) {
  if (inner < 1 || ranks < inner || ranks % inner != 0) return false;
  std::int64_t outer = ranks / inner;
  if (ranks > kMaxProvenRanks) {
    inner = std::min(has_levels(rule) ? inner : std::int64_t{1}, kMaxProvenMembersOfLevel);
    outer = std::min(outer, kMaxProvenMembersOfLevel);
  }
  const std::optional<Program> program = composed_program(rule.collective, rule.legs, inner * outer, inner);
  return program && verify_program(*program).accepted();
}

}  // namespace weft
