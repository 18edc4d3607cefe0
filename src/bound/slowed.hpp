// A rank that computes while its transfers are under way: each slows the other down, so that neither a period as long
// as the compute nor one as long as the link's work is enough.
#pragma once

namespace weft {

// Times in one period, in any unit; slow-downs as in CostModel::Interference, at least 0.
struct SharedPeriod {
  double compute = 0;  // of the rank, without transfers beside it
  double link = 0;     // work of a link, and what it must rest besides
  double own = 0;      // of that work, what the rank's own transfers bring
  double compute_slowdown = 0, transfer_slowdown = 0;
};

// No period is shorter than either: what compute takes, and what the link takes, with what the other one adds.
struct SlowedPeriod {
  double compute = 0, link = 0;
};
SlowedPeriod slowed(const SharedPeriod& period);

}  // namespace weft
