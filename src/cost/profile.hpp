// How much of a device's and a link's peak real kernels reach. One set of constants per device, for everything.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/units.hpp"

namespace weft {

struct DeviceProfile {
  double matrix_efficiency = 0.8;     // of the matrix peak, large products
  double attention_efficiency = 0.5;  // of the matrix peak, inside the attention kernel
  double memory_efficiency = 0.8;     // of the memory bandwidth, streaming kernels
  Nanos launch{3000};                 // a kernel's fixed cost when the host runs ahead
};

struct Profile {
  std::map<std::string, DeviceProfile, std::less<>> devices;       // by Device::name
  std::map<std::string, double, std::less<>> link_efficiency;      // by level name: payload over the link's rate
  const DeviceProfile& device(std::string_view name) const;        // "default" where it has none
  double efficiency(std::string_view level, bool emulated) const;  // emulated links are paced at their rate
};

Profile default_profile();

}  // namespace weft
