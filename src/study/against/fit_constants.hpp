// The constants of a profile that measured steps can tell: few, each a property of a device, a level of links or a
// framework's host that has a name in the profile's file.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

struct FitConstant {
  std::string name;  // as a path into the profile's file: "h100.matrix_efficiency"
  double most;       // shares of a peak end at 1
  std::function<double(const Profile&)> read;
  std::function<void(Profile&, double)> write;
};

// Those of the devices and levels that the jobs use, and of the profile's framework. A constant that is zero in the
// profile names a thing that is not there, and is left out.
std::vector<FitConstant> fit_constants(const Profile& profile, std::span<const Inputs> jobs);

}  // namespace weft
