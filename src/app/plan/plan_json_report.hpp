// A plan study as the one JSON object that other tools read (keys are stable).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "io/megatron/megatron_args.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

nlohmann::ordered_json plan_json_report(const PlanStudy& study);
// Its parts: all but the policies, and the figures of one of them.
nlohmann::ordered_json study_json(const PlanStudy& study);
nlohmann::ordered_json policy_json(const PlanStudy& study, const PolicyStudy& policy);

// Of a timeline without a plan: the terms of its step, and those of each stage.
nlohmann::ordered_json accounting_json(const Timeline& timeline, const Accounting& accounting);

// "ignored_flags": [{"flag", "value", "reason"}], where there are any.
void add_ignored_flags(nlohmann::ordered_json& json, const std::vector<IgnoredFlag>& ignored);

}  // namespace weft
