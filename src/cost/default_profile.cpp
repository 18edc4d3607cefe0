// The constants that come with Weft, each with its origin.
#include <bit>
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

// SimAI's efficiencies of all-to-alls, 16 MiB to 1 GiB, within a node and between 2, 4, 8 and 16 nodes of 8. Smaller
// sizes follow from the fixed time that the first point implies at the rate of large sizes.
using ByMembers = std::map<std::int64_t, std::vector<MeasuredEfficiency>>;
ByMembers nvlink_all_to_all() {
  return {{8, bus_bandwidths(1, 1, {0.06, 0.11, 0.19, 0.31, 0.44, 0.51, 0.60, 0.65, 0.70, 0.71, 0.74})}};
}
ByMembers nic_all_to_all() {
  return {{16, bus_bandwidths(1, 1, {0.08, 0.15, 0.25, 0.39, 0.52, 0.63, 0.72, 0.76, 0.79, 0.80, 0.81})},
          {32, bus_bandwidths(1, 1, {0.12, 0.22, 0.36, 0.52, 0.67, 0.68, 0.83, 0.90, 0.92, 0.94, 0.94})},
          {64, bus_bandwidths(1, 1, {0.11, 0.20, 0.33, 0.48, 0.64, 0.67, 0.82, 0.85, 0.87, 0.89, 0.92})},
          {128, bus_bandwidths(1, 1, {0.10, 0.19, 0.31, 0.46, 0.62, 0.66, 0.66, 0.72, 0.75, 0.81, 0.85})}};
}

// NCCL's all_reduce within a node, 1 MiB to 1 GiB: vTrain's tables for 2, 4 and 8 A100 behind NVSwitch (300 GB/s). From
// 4 MiB up there are four sizes to a doubling: NCCL cuts buffers into whole pieces, so sizes between powers of two are
// up to a tenth faster or slower than their neighbours.
std::vector<MeasuredEfficiency> a100_bus_bandwidths(std::initializer_list<double> rates) {
  constexpr double kLink = 300;
  std::vector<MeasuredEfficiency> points;
  std::int64_t mib = 1;
  for (const double rate : rates) {
    points.push_back({Bytes{mib << 20}, rate / kLink});
    mib += mib < 8 ? 1 : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(mib))) / 4;
  }
  return points;
}

LinkProfile a100_nvlink() {
  LinkProfile link{0.76, {}, nvlink_all_to_all()};
  link.measured[2] =
      a100_bus_bandwidths({23.2,  41.0,  58.1,  69.6,  75.9,  89.5,  89.2,  96.0,  109.8, 119.3, 120.2, 129.7,
                           133.1, 144.3, 146.7, 146.5, 154.3, 160.5, 160.8, 166.1, 169.3, 175.5, 174.1, 175.3,
                           179.2, 182.5, 181.2, 184.6, 185.5, 188.1, 189.2, 189.5, 192.3, 194.2, 194.8, 196.9});
  link.measured[4] =
      a100_bus_bandwidths({29.8,  56.2,  74.0,  83.0,  94.2,  93.7,  102.4, 110.8, 123.4, 137.2, 135.3, 141.6,
                           159.0, 173.3, 165.8, 178.7, 178.0, 191.2, 190.2, 186.2, 193.7, 198.4, 195.5, 201.2,
                           200.5, 209.0, 208.7, 208.9, 212.4, 214.1, 214.5, 216.4, 217.8, 219.9, 220.9, 221.4});
  link.measured[8] =
      a100_bus_bandwidths({19.9,  39.5,  59.0,  78.1,  95.8,  102.9, 109.7, 113.1, 119.3, 127.4, 131.4, 127.1,
                           137.4, 167.7, 156.5, 165.1, 189.5, 201.1, 188.1, 202.6, 198.5, 213.3, 211.3, 201.4,
                           211.3, 219.1, 208.1, 217.7, 214.6, 223.9, 223.8, 224.4, 227.1, 227.9, 227.6, 229.2});
  return link;
}

// vTrain's table for 8 V100 of a DGX-1 (150 GB/s).
LinkProfile v100_nvlink() {
  LinkProfile link{0.89, {}, nvlink_all_to_all()};
  link.measured[8] = bus_bandwidths(150, 1, {23.3, 36.3, 48.6, 61.9, 107.3, 122.3, 128.7, 132.0, 133.1, 134.0, 134.4});
  return link;
}

// SimAI's efficiencies of NVLink within a node by size, 16 MiB to 16 GiB; smaller sizes by the A100's shape.
LinkProfile hopper_nvlink() {
  LinkProfile link{0.80, {}, nvlink_all_to_all()};
  link.measured[8] =
      bus_bandwidths(1, 1, {0.07, 0.14, 0.25, 0.36, 0.45, 0.55, 0.65, 0.69, 0.73, 0.76, 0.77, 0.78, 0.79, 0.80, 0.81});
  return link;
}

// Seven constants are fitted, once, to vTrain's measured steps (774 runs of Megatron-DeepSpeed on A100, see
// docs/accuracy.md), and are marked so; papers that were not fitted to check them.
DeviceProfile a100() {
  DeviceProfile device;
  // Products alone reach 293 of 312 TFLOP/s in full waves (LLMCompass's measurements); over a whole step the clock is
  // lower. Fitted.
  device.matrix_efficiency = 0.86;
  device.tile_startup = 64;            // LLMCompass's measurements: 61
  device.batched_efficiency = 0.27;    // fitted
  device.attention_efficiency = 0.55;  // an estimate: FlashAttention-2's authors report 0.5 to 0.7 of the peak
  device.memory_efficiency = 0.765;    // LLMCompass: 1.56 TB/s of 2.04 for GELU and layer norm
  device.kernel_gap = Nanos{8'000};    // fitted
  // Time that PyTorch's eager mode with checkpointing needs to issue a kernel of the model with the small ones around
  // it. Fitted to steps whose kernels are too short to hide it.
  device.launch = Nanos{60'000};
  device.transfer_launch = Nanos{20'000};  // fitted
  device.resync = Nanos{1'100'000};        // fitted
  device.links["nvlink"] = a100_nvlink();
  return device;
}

DeviceProfile hopper() {
  DeviceProfile device;
  // 697 to 716 of 989 TFLOP/s in products of milliseconds on one H200, measured for this project. The H100 has the same
  // tensor cores.
  device.matrix_efficiency = 0.72;
  // All figures below are estimates: no step of an H100 has been fitted.
  device.attention_efficiency = 0.45;
  device.memory_efficiency = 0.8;
  device.kernel_gap = Nanos{5'000};
  device.launch = Nanos{10'000};
  device.transfer_launch = Nanos{5'000};
  device.resync = Nanos{100'000};
  device.links["nvlink"] = hopper_nvlink();
  return device;
}

// Estimates: shares of the peaks as on Hopper; its fp8 and fp4 peaks are as far above.
DeviceProfile blackwell() {
  return hopper();
}

DeviceProfile v100() {
  DeviceProfile device = a100();
  // Estimates: between the data sheet and two steps that Megatron-LM's README of 2020 gives for one and two V100.
  device.matrix_efficiency = 0.80;
  device.attention_efficiency = 0.35;
  device.memory_efficiency = 0.8;
  device.links["nvlink"] = v100_nvlink();
  return device;
}

// One core runs the operations itself, so nothing is issued ahead. These are orders of magnitude; calibration replaces
// them.
DeviceProfile cpu() {
  DeviceProfile device;
  device.matrix_efficiency = 1.0;
  device.tiled = false;
  device.attention_efficiency = device.batched_efficiency = 0.6;
  device.kernel_gap = Nanos{3'000};
  device.launch = device.transfer_launch = device.resync = Nanos{0};
  return device;
}

}  // namespace

Profile default_profile() {
  Profile profile;
  profile.devices = {{"default", {}},        {"a100-40", a100()},    {"a100-80", a100()}, {"a100-80-pcie", a100()},
                     {"h100", hopper()},     {"h800", hopper()},     {"h200", hopper()},  {"b200", blackwell()},
                     {"gb200", blackwell()}, {"gb300", blackwell()}, {"v100-16", v100()}, {"v100-32", v100()},
                     {"cpu", cpu()}};
  // NICs: fitted; tensor parallelism over two of vTrain's nodes reached 0.88, data parallelism less. Leaves and spines:
  // an estimate. PCIe figures are payload rates already.
  profile.links = {{"nvlink", {0.76, {}, nvlink_all_to_all()}},
                   {"nic", {0.85, {}, nic_all_to_all()}},
                   {"leaf", {0.9, {}}},
                   {"spine", {0.9, {}}},
                   {"pcie", {1.0, {}}}};
  return profile;
}

}  // namespace weft
