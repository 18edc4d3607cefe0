// An oracle for the verifier: runs a plan with random timings and watches every byte. It reads the plan and its graph
// only and shares no code with unfolding, ordering or the hazard check.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "plan/plan.hpp"

namespace weft::test {

// Three iterations of the plan, `runs` times with timings drawn from `seed`. What went wrong first, or nothing:
//   an operation runs twice or never, all are stuck, a value lies outside the memory,
//   an operation finds bytes that are not what it reads, or they change while it runs,
//   a user's task starts before its release has ended, or its deadline starts before the task has ended
std::optional<std::string> find_damage(const Plan& plan, std::uint64_t seed, int runs);

}  // namespace weft::test
