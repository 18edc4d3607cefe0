#include "cost/profile.hpp"

#include "base/error.hpp"

namespace weft {

const DeviceProfile& Profile::device(std::string_view name) const {
  auto found = devices.find(name);
  if (found == devices.end()) found = devices.find("default");
  WEFT_CHECK(found != devices.end());
  return found->second;
}

double Profile::efficiency(std::string_view level, bool emulated) const {
  if (emulated) return 1.0;
  const auto found = link_efficiency.find(level);
  return found == link_efficiency.end() ? 0.9 : found->second;
}

Profile default_profile() {
  Profile profile;
  profile.devices["default"] = {};
  // Attention efficiencies and launch times are estimates on every device.
  // A100: LLMCompass measured 269-293 of 312 TFLOP/s for products of 8192 x n x n, n >= 4096, and 0.19 ms for
  // 64 x 12288 x 12288, which is 0.79 of the memory bandwidth.
  const DeviceProfile a100{.matrix_efficiency = 0.90, .attention_efficiency = 0.55};
  profile.devices["a100-40"] = profile.devices["a100-80"] = a100;
  // H200: 716 of 989 TFLOP/s for 8192 x 24576 x 8192, measured for this project; the H100 has the same tensor cores.
  const DeviceProfile hopper{.matrix_efficiency = 0.72, .attention_efficiency = 0.45};
  profile.devices["h100"] = profile.devices["h800"] = profile.devices["h200"] = hopper;
  // V100: estimates, no measurement behind them.
  const DeviceProfile v100{.matrix_efficiency = 0.75, .attention_efficiency = 0.35};
  profile.devices["v100-16"] = profile.devices["v100-32"] = v100;
  profile.devices["cpu"] = {.matrix_efficiency = 1.0, .attention_efficiency = 0.6, .memory_efficiency = 0.8};
  // NVLink: 229 GB/s bus bandwidth of NCCL on 300 GB/s links (vTrain's A100 table, 1 GiB). NICs,
  // leaves and spines: an estimate. PCIe figures are already payload rates.
  profile.link_efficiency = {{"nvlink", 0.76}, {"nic", 0.9}, {"leaf", 0.9}, {"spine", 0.9}, {"pcie", 1.0}};
  return profile;
}

}  // namespace weft
