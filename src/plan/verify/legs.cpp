#include "plan/verify/legs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "graph/substitute.hpp"

namespace weft {
namespace {

// Each shape of a group is proven once.
class Proofs {
 public:
  bool holds(const TransferRule& by, const ClassGroup& group) {
    const LevelSizes levels = by.levels == kOwnLevels ? group.level_sizes() : by.levels;
    const auto [known, is_new] = known_.try_emplace({by.rule, group.view.size, levels}, false);
    if (is_new) known->second = weft::holds(rule_of(by.rule), group.view.size, levels);
    return known->second;
  }

 private:
  std::map<std::tuple<Substitution, std::int64_t, LevelSizes>, bool> known_;
};

}  // namespace

bool has_legs(const StepGraph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(), [](const Operation& op) {
    return op.rule != Substitution::none || op.leg != 0 ||
           (op.communication && op.communication->scope != Scope::whole);
  });
}

LegOrigins find_leg_origins(const StepGraph& model, const StepGraph& plan) {
  LegOrigins result;
  Proofs proofs;
  std::vector<TransferRule> rules(model.operations.size());
  std::vector<bool> named(rules.size(), false);
  for (const Operation& op : plan.operations) {
    const std::string where = fmt::format("{}: '{}'", plan.classes[op.rank_class.index()].name, describe(op));
    const auto legs = op.rule == Substitution::none ? std::int64_t{1} : std::ssize(rule_of(op.rule).legs);
    if (op.leg < 0 || op.leg >= legs) {
      result.violation = fmt::format("{} is leg {} of {}, which has {}", where, op.leg, name_of(op.rule), legs);
      return result;
    }
    for (const Origin& origin : op.origins) {
      if (!origin.operation.valid() || origin.operation.index() >= rules.size()) {
        result.violation =
            fmt::format("{} names origin {}, which the model does not have", where, origin.operation.value);
        return result;
      }
      const Operation& source = model.op(origin.operation);
      TransferRule& by = rules[origin.operation.index()];
      const Substitution rule = op.rule;
      const TransferRule own(rule, op.communication ? op.communication->levels : kOwnLevels);
      if (named[origin.operation.index()] && by != own) {
        result.violation = fmt::format("{} carries out '{}' by {}, another operation by {}", where, describe(source),
                                       in_words(own), in_words(by));
        return result;
      }
      named[origin.operation.index()] = true;
      by = own;
      if (rule == Substitution::none) continue;
      if (!may_be_substituted(model, source, by)) {
        result.violation = fmt::format("{} carries out '{}' by {}, which may not be applied to it", where,
                                       describe(source), in_words(by));
        return result;
      }
      const ClassGroup& group = model.classes[source.rank_class.index()].group(source.communication->group);
      if (!proofs.holds(by, group)) {
        result.violation =
            fmt::format("{} goes by {}, which is not proven for {} ranks", where, in_words(by), group.view.size);
        return result;
      }
    }
  }
  SubstitutedGraph substituted(model, rules);
  result.graph = plan;
  for (Operation& op : result.graph.operations) {
    for (Origin& origin : op.origins) origin.operation = substituted.leg_of(origin.operation, op.leg);
  }
  result.whole = substituted.graph();
  return result;
}

}  // namespace weft
