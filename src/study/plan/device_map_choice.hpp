// Decides by prediction which rank is on which device and, where devices differ, how many layers each stage has.
#pragma once

#include <string>

#include "cluster/device_map.hpp"
#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

struct DeviceMapChoice {
  std::string policy;                      // that steps were predicted with
  DeviceMapSearch search;                  // steps that do not fit in memory count as longer than all that do
  std::vector<std::int64_t> stage_layers;  // where others than the layout's are better
  double step_s = 0;                       // with both
};

// `may_move_layers`: nobody asked for the layers that stages have.
DeviceMapChoice choose_device_map(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                  bool may_move_layers);

// "ranks on devices 0,1,3,2: 1.20 s a step instead of 1.50 s in rank order (predicted with priority, all 4 maps)".
std::string device_map_line(const DeviceMapChoice& choice);

}  // namespace weft
