// What userbuffers of tensor parallelism take in a plan, product by product (graph/userbuffers.hpp).
#pragma once

#include <string>
#include <vector>

#include "study/plan/plan_study.hpp"

namespace weft {

// The transfers that run with one product, of the first layer that has them.
struct UserbufferRow {
  std::string product, method;
  std::string collective;
  bool copy_engine = false;
  std::int32_t thread_blocks = 0;  // SMs
  std::int64_t device_units = 0;   // SMs of the device
  std::int64_t parts = 1;
  Bytes bytes;          // of a part, the largest
  Nanos time;           // of it, alone
  double slowdown = 0;  // of compute beside it
};

// Empty where userbuffers move nothing of the plan.
std::vector<UserbufferRow> userbuffer_rows(const Plan& plan, const Profile& profile);
// The position of the first policy whose plan has some; the number of policies where none has.
std::size_t policy_with_userbuffers(const PlanStudy& study, const Profile& profile);

}  // namespace weft
