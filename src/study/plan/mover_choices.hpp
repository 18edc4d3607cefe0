// Who moves the transfers of a plan inside nodes, and what others would take (cost/movers.hpp).
#pragma once

#include <string>
#include <vector>

#include "study/plan/plan_study.hpp"

namespace weft {

// How one mover does for a transfer.
struct MoverFigures {
  std::string mover;
  Nanos time;           // alone
  double slowdown = 0;  // of compute beside it
};

// Transfers of one plan that are the same collective, group and size and have the same mover.
struct MovedTransfers {
  std::string collective, group;
  std::int64_t members = 0;
  Bytes bytes;
  std::int64_t transfers = 0;  // operations of the plan; each stands for one a step or a micro-batch
  bool beside_compute = false;
  MoverFigures chosen;
  std::vector<MoverFigures> others;
};

// Of transfers that somebody else than the library could move, largest sizes first.
std::vector<MovedTransfers> mover_choices(const PlanStudy& study, std::size_t policy, const Profile& profile);

}  // namespace weft
