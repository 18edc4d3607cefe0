// Proves before the first step that a plan is safe to run.
#pragma once

#include <optional>
#include <string>

#include "plan/whole_plan.hpp"

namespace weft {

enum class Rule { provenance, collective_order, program, deadlock, window, hazard, memory };
std::string_view name_of(Rule rule);

struct Violation {
  Rule rule = Rule::provenance;
  std::string message;  // what is wrong, in words that name operations, ranks and bytes
};

struct VerifyOptions {
  Bytes memory_limit = {};   // 0: each device's own memory
  bool check_memory = true;  // a plan that does not fit may still be looked at
};

// Returns the first violation, or nothing. The rules are:
//   provenance        the operations are those of the model and layout, each done exactly once
//   collective order  members of a group issue its transfers to matching queues, in the same order, and carry each out
//                     alike
//   program           programs that the plan carries are proven for every timing
//   deadlock          queue orders, dependencies and transfers across ranks allow an order to run in
//   window            work that fills idle time starts after its release and ends before its deadline
//   hazard            every value lies inside its class's memory; nothing is read before it is written, or overwritten
//                     while it may still be read
//   memory            every class fits its device
std::optional<Violation> verify_plan(const WholePlan& whole, const VerifyOptions& options = {});

// A plan that was read from a file, made whole and verified.
struct CheckedPlan {
  std::optional<WholePlan> whole = {};  // none where the plan is not the model's, or issues an operation twice or never
  std::optional<Violation> violation = {};
};
CheckedPlan check_plan(Plan plan, const VerifyOptions& options = {});
inline std::optional<Violation> verify_plan(Plan plan, const VerifyOptions& options = {}) {
  return check_plan(std::move(plan), options).violation;
}

}  // namespace weft
