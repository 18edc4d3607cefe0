#include "cost/power_cap.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "cluster/device_kind.hpp"

namespace weft {
namespace {

struct RatedPower {
  std::string_view device;
  double watts;
};
// NVIDIA's data sheets, SXM modules but for the PCIe card; of GB200 and GB300 one GPU of the rack.
constexpr std::array kRatedPowers{
    RatedPower{"v100-16", 300},      RatedPower{"v100-32", 300}, RatedPower{"a100-40", 400}, RatedPower{"a100-80", 400},
    RatedPower{"a100-80-pcie", 300}, RatedPower{"h100", 700},    RatedPower{"h800", 700},    RatedPower{"h200", 700},
    RatedPower{"b200", 1000},        RatedPower{"gb200", 1200},  RatedPower{"gb300", 1400}};
// Below this share of the rated power the model says nothing: little is left for the compute units.
constexpr double kLeastShare = 0.4;

void slow_down(DeviceProfile& device, double clock) {
  device.matrix_efficiency *= clock;
  device.fp8_efficiency *= clock;
  device.fp4_efficiency *= clock;
  device.batched_efficiency *= clock;
  device.attention_efficiency *= clock;
}

}  // namespace

double rated_watts(std::string_view device) {
  const auto found = std::find_if(kRatedPowers.begin(), kRatedPowers.end(),
                                  [&](const RatedPower& power) { return power.device == kind_of_device(device); });
  return found == kRatedPowers.end() ? 0 : found->watts;
}

double clock_under_cap(std::string_view device, double cap_watts) {
  const double rated = rated_watts(device);
  if (rated == 0) fail("the rated power of {} is not known", device);
  if (cap_watts > rated || cap_watts < kLeastShare * rated) {
    fail("{} allows {:g} to {:g} watts", device, kLeastShare * rated, rated);
  }
  return capped_clock(cap_watts, rated);
}

double capped_clock(double cap_watts, double rated_watts) {
  const double constant = kConstantShare * rated_watts;
  return std::cbrt((cap_watts - constant) / (rated_watts - constant));
}

Profile with_power_cap(Profile profile, const ClusterSpec& cluster, double cap_watts) {
  std::set<std::string> names{cluster.device.name};
  for (const NodeOverride& node : cluster.overrides) {
    if (node.device) names.insert(node.device->name);
  }
  for (const std::string& name : names) {
    DeviceProfile device = profile.device(name);
    try {
      slow_down(device, clock_under_cap(name, cap_watts));
    } catch (const Error& error) {
      fail("--power-cap {:g}: {}", cap_watts, error.what());
    }
    profile.devices[name] = std::move(device);
  }
  return profile;
}

}  // namespace weft
