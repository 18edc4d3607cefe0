#include "collective/substitution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

// Members of a level that stand for more, of two and of three levels.
constexpr std::int64_t kMaxProvenMembersOfLevel = 8, kMaxProvenMembersOfThree = 4;

std::string with_sizes(std::string_view name, LevelSizes levels) {
  if (levels == kOwnLevels) return std::string(name);
  if (levels.middle == 1) return fmt::format("{} of {}", name, levels.inner);
  return fmt::format("{} of {}x{}", name, levels.inner, levels.middle);
}

}  // namespace

std::string_view name_of(Scope scope) {
  static constexpr std::array<std::string_view, 6> kNames = {"whole", "inner", "outer", "middle", "top", "self"};
  return enum_name(kNames, scope);
}

std::string in_words(Scope scope, LevelSizes levels) {
  return with_sizes(name_of(scope), levels);
}

std::string in_words(const TransferRule& rule) {
  return with_sizes(name_of(rule.rule), rule.levels);
}

std::string_view name_of(Substitution substitution) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"none", "all_reduce_in_halves", "all_reduce_in_levels", "reduce_scatter_in_levels", "all_gather_in_levels",
       "all_to_all_in_levels", "all_reduce_at_root", "reduce_scatter_by_exchange", "all_gather_by_broadcasts",
       "all_gather_by_sends", "all_to_all_by_sends", "all_reduce_in_three_levels", "reduce_scatter_in_three_levels",
       "all_gather_in_three_levels", "all_to_all_in_three_levels"});
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
      {Substitution::all_reduce_in_three_levels,
       all_reduce,
       {{reduce_scatter, inner},
        {reduce_scatter, middle},
        {all_reduce, top},
        {all_gather, middle},
        {all_gather, inner}}},
      {Substitution::reduce_scatter_in_three_levels,
       reduce_scatter,
       {{reduce_scatter, inner}, {reduce_scatter, middle}, {reduce_scatter, top}}},
      {Substitution::all_gather_in_three_levels,
       all_gather,
       {{all_gather, top}, {all_gather, middle}, {all_gather, inner}}},
      {Substitution::all_to_all_in_three_levels,
       all_to_all,
       {{all_to_all, inner}, {all_to_all, middle}, {all_to_all, top}}},
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
                     [](const RuleLeg& s) { return s.scope != Scope::whole && s.scope != Scope::self; });
}

bool has_three_levels(const SubstitutionRule& rule) {
  return std::any_of(rule.legs.begin(), rule.legs.end(),
                     [](const RuleLeg& s) { return s.scope == Scope::middle || s.scope == Scope::top; });
}

bool holds(const SubstitutionRule& rule, std::int64_t ranks, LevelSizes levels) {
  if (!has_three_levels(rule)) levels.middle = 1;  // it does not tell them apart
  if (levels.inner < 1 || levels.middle < 1) return false;
  std::int64_t top = ranks / levels.inner / levels.middle;
  if (top < 1 || top * levels.inner * levels.middle != ranks) return false;
  if (ranks > kMaxProvenRanks) {
    const std::int64_t most = has_three_levels(rule) ? kMaxProvenMembersOfThree : kMaxProvenMembersOfLevel;
    levels.inner = std::min(has_levels(rule) ? levels.inner : std::int64_t{1}, most);
    levels.middle = std::min(levels.middle, most);
    top = std::min(top, most);
  }
  const std::int64_t proven = levels.inner * levels.middle * top;
  const std::optional<Program> program = composed_program(rule.collective, rule.legs, proven, levels);
  return program && verify_program(*program).accepted();
}

}  // namespace weft
