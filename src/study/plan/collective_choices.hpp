// What carries out every collective of a plan, and what else could have.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "study/plan/plan_study.hpp"

namespace weft {

// Transfers of one plan that are the same collective, group and size, and take the same time on their links.
struct CollectiveChoice {
  std::string collective, group;
  std::int64_t members = 0;
  Bytes bytes;
  std::int64_t transfers = 0;  // operations of the plan; each stands for one a step or a micro-batch
  std::string chosen;
  Nanos time;           // alone, as the plan is priced
  bool wanted = false;  // because the user names it
  // The rank classes that take part, where others have the same transfers on other links.
  std::vector<std::string> classes;
  bool spans_classes = false;  // one program for members that see different links
  // Alone, fastest first: what ours, the library and programs made for the topology take.
  std::vector<std::pair<std::string, Nanos>> candidates;
};

// Largest sizes first. Groups whose members are too many to be simulated are left out.
std::vector<CollectiveChoice> collective_choices(const PlanStudy& study, std::size_t policy, const Profile& profile);

// Whether there was a choice beyond the generators': a topology or programs of the user's.
bool has_program_choice(const Inputs& inputs);

}  // namespace weft
