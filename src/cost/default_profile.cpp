// The constants that come with Weft, each with its origin. "fitted" = by tools/fit notes in docs/accuracy.md.
#include <initializer_list>

#include "cost/profile.hpp"

namespace weft {
namespace {

// Bus bandwidth in GB/s at 1, 2, 4, ... MiB.
std::vector<MeasuredEfficiency> bus_bandwidths(double link, std::int64_t first_mib,
                                               std::initializer_list<double> rates) {
  std::vector<MeasuredEfficiency> points;
  std::int64_t mib = first_mib;
  for (const double rate : rates) {
    points.push_back({Bytes{mib << 20}, rate / link});
    mib *= 2;
  }
  return points;
}

// NCCL's all_reduce within a node, 1 MiB to 1 GiB: vTrain's tables for 2, 4 and 8 A100 behind NVSwitch (300 GB/s).
LinkProfile a100_nvlink() {
  LinkProfile link{0.76, {}};
  link.measured[2] = bus_bandwidths(300, 1, {23.3, 41.0, 69.6, 96.0, 129.7, 146.5, 166.1, 175.3, 184.6, 189.5, 196.9});
  link.measured[4] = bus_bandwidths(300, 1, {29.8, 56.2, 83.0, 110.8, 141.6, 178.7, 186.2, 201.2, 208.9, 216.5, 221.4});
  link.measured[8] = bus_bandwidths(300, 1, {19.9, 39.5, 78.1, 113.1, 127.1, 165.1, 202.6, 201.4, 217.7, 224.4, 229.3});
  return link;
}

// vTrain's table for 8 V100 of a DGX-1 (150 GB/s).
LinkProfile v100_nvlink() {
  LinkProfile link{0.89, {}};
  link.measured[8] = bus_bandwidths(150, 1, {23.3, 36.3, 48.6, 61.9, 107.3, 122.3, 128.7, 132.0, 133.1, 134.0, 134.4});
  return link;
}

// SimAI's efficiencies of NVLink within a node by size, 16 MiB to 16 GiB; smaller sizes by the A100's shape.
LinkProfile hopper_nvlink() {
  LinkProfile link{0.80, {}};
  link.measured[8] =
      bus_bandwidths(1, 1, {0.07, 0.14, 0.25, 0.36, 0.45, 0.55, 0.65, 0.69, 0.73, 0.76, 0.77, 0.78, 0.79, 0.80, 0.81});
  return link;
}

}  // namespace

Profile default_profile() {
  Profile profile;
  profile.devices["default"] = {};
  DeviceProfile a100;
  a100.matrix_efficiency = 0.86;
  a100.tile_startup = 64;
  a100.batched_efficiency = 0.27;
  a100.attention_efficiency = 0.55;
  a100.memory_efficiency = 0.765;
  a100.kernel_gap = Nanos{8'000};
  a100.launch = Nanos{60'000};
  a100.transfer_launch = Nanos{20'000};
  a100.resync = Nanos{1'100'000};
  a100.links["nvlink"] = a100_nvlink();
  profile.devices["a100-40"] = profile.devices["a100-80"] = a100;

  DeviceProfile hopper;
  hopper.matrix_efficiency = 0.72;
  hopper.attention_efficiency = 0.45;
  hopper.links["nvlink"] = hopper_nvlink();
  profile.devices["h100"] = profile.devices["h800"] = profile.devices["h200"] = hopper;

  DeviceProfile v100;
  v100.matrix_efficiency = 0.75;
  v100.attention_efficiency = 0.35;
  v100.links["nvlink"] = v100_nvlink();
  profile.devices["v100-16"] = profile.devices["v100-32"] = v100;

  DeviceProfile cpu;
  cpu.matrix_efficiency = 1.0;
  cpu.tiled = false;
  cpu.attention_efficiency = cpu.batched_efficiency = 0.6;
  cpu.kernel_gap = Nanos{3'000};
  cpu.launch = cpu.transfer_launch = cpu.resync = Nanos{0};  // the rank's thread computes itself
  profile.devices["cpu"] = cpu;

  profile.links = {
      {"nvlink", {0.76, {}}}, {"nic", {0.85, {}}}, {"leaf", {0.9, {}}}, {"spine", {0.9, {}}}, {"pcie", {1.0, {}}}};
  return profile;
}

}  // namespace weft
