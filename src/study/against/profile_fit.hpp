// Fits the constants of a profile to measured steps, and says how well rows are predicted that were not fitted to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "study/against/prediction.hpp"

namespace weft {

struct MeasuredStep {
  Inputs inputs;
  std::string policy;
  double step_s = 0;                           // measured
  std::vector<MeasuredCollective> links = {};  // what the run's own links carried, where it is known
};

struct ProfileFit {
  struct Constant {
    std::string name;  // as a path into the profile's file
    double before = 0, after = 0;
    double least = 0, most = 0;  // of the fits that leave a row out
  };
  Profile profile;
  std::vector<Constant> constants;
  std::vector<std::string> untold;  // constants that no row depends on; they stay as they were
  // predicted / measured - 1 of every row: as it was, fitted to all rows, and fitted to all rows but this.
  std::vector<double> before, after, left_out;
};

// Gauss-Newton on the logarithms of steps and constants, with the loss of robust_step.hpp. Fits without a row start
// from the fit to all and take one step on the same derivatives; the row itself is then planned and simulated anew.
ProfileFit fit_profile(std::span<const MeasuredStep> rows, const Profile& profile, std::size_t jobs);

}  // namespace weft
