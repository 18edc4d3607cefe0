// The table of known machines, and the reader of PRESET:NODES[,key=value...].
#include "cluster/presets.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/validate.hpp"

namespace weft {
namespace {

// Per-hop latencies: the time one small message needs across the link, software included on the NIC. Orders
// of magnitude (load and store over NVLink, a PCIe switch, an RDMA write through one or two switches);
// calibration and the cost model refine them.
constexpr Nanos kNvlinkLatency{1'000};
constexpr Nanos kPcieLatency{500};
constexpr Nanos kNicLatency{5'000};
// A wake-up of a thread, or TCP on the same machine.
constexpr Nanos kLocalLatency{50'000};

// Hopper and later GPUs are cut into partitions of so many SMs, because clusters of thread blocks stay together.
constexpr int kUnitsPerPartition = 8;

// PCIe gen3 x16: 15.75 GB/s on the wire, about 12 for payload; NCCL's topology search uses the same figure. A
// switch joins two GPUs to the root, so two share it.
constexpr Bandwidth kPcieGen3{12e9};
constexpr std::int64_t kDevicesPerPcieSwitch = 2;
// Twice that, as in NCCL's topology search.
constexpr Bandwidth kPcieGen4{24e9};

struct Machine {
  std::string_view name;
  std::string_view device;
  std::int64_t devices;  // of a node
  Bandwidth nvlink;      // per device and direction, all its links together
  Bandwidth nic;         // of one NIC, per direction
  std::int64_t devices_per_nic;
  bool pcie_limits;  // the NIC is reached over PCIe gen3, which is slower than it
  // NVLink bridges join so many devices of a node; all of them talk over PCIe gen4, each with a slot of 16 lanes at a
  // host. 0: NVLink joins the node.
  std::int64_t bridged = 0;
};

// Bits per second, the unit NICs are sold in.
constexpr Bandwidth gigabits(double n) {
  return {n * 1e9 / 8};
}

constexpr std::array kMachines{
    // 6 NVLink2 links of 25 GB/s a GPU. They form a hybrid cube mesh, not a switch: pairs without a direct
    // link go through a third GPU, which the aggregate ignores. 4 x EDR InfiniBand, each behind the PCIe
    // switch of two GPUs.
    Machine{"dgx1-v100", "v100-32", 8, {150e9}, gigabits(100), 2, true},
    // NVSwitch, 12 NVLink3 links of 25 GB/s; 8 x HDR InfiniBand over PCIe gen4, which carries 200 Gb/s.
    Machine{"dgx-a100", "a100-80", 8, {300e9}, gigabits(200), 1, false},
    // NVSwitch, 18 NVLink4 links of 25 GB/s; 8 x NDR InfiniBand over PCIe gen5.
    Machine{"dgx-h100", "h100", 8, {450e9}, gigabits(400), 1, false},
    // DeepSeek-V3's machine: NVLink of 400 GB/s in both directions together, 8 x NDR InfiniBand.
    Machine{"dgx-h800", "h800", 8, {200e9}, gigabits(400), 1, false},
    Machine{"dgx-h200", "h200", 8, {450e9}, gigabits(400), 1, false},
    // NVSwitch, 18 NVLink5 links of 50 GB/s; 8 x NDR InfiniBand.
    Machine{"dgx-b200", "b200", 8, {900e9}, gigabits(400), 1, false},
    // A rack whose 72 GPUs (18 trays of 4) are one NVLink domain, here one node; a NIC of 400 Gb/s for each, of 800
    // with
    // GB300. Jobs often use 64 of them: gpus=64.
    Machine{"gb200-nvl72", "gb200", 72, {900e9}, gigabits(400), 1, false},
    Machine{"gb300-nvl72", "gb300", 72, {900e9}, gigabits(800), 1, false},
    // AWS p3dn.24xlarge: the GPUs of a DGX-1, one 100 Gb/s adapter for all of them.
    Machine{"p3dn", "v100-32", 8, {150e9}, gigabits(100), 8, true},
    // AWS p4de.24xlarge: the GPUs of a DGX A100, 4 EFA adapters of 100 Gb/s, two GPUs at each.
    Machine{"p4de", "a100-80", 8, {300e9}, gigabits(100), 2, false},
    // Servers with 8 PCIe cards directly at two hosts (Supermicro AS-4124GS-TNR, say), bridged in pairs: an A100 80GB
    // PCIe has 600 GB/s of NVLink over its bridges, both directions together. An HDR adapter at each host is an
    // assumption, and what the link between the hosts carries is left out.
    Machine{"a100-pcie", "a100-80-pcie", 8, {300e9}, gigabits(200), 4, false, 2},
    // Ranks of this machine, each its own node. No NVLink; the pace of the link is what the user says.
    Machine{"local", "cpu", 1, {0}, gigabits(1), 1, false},
    // Ranks on the GPUs of this machine, each its own node for NCCL, which talks over sockets on loopback: 2.8 GiB/s of
    // bus bandwidth between two ranks on one H200.
    Machine{"gpu", "h200", 1, {0}, gigabits(24), 1, false},
};

using Keys = std::map<std::string, std::string>;

// Whose ranks are nodes of their own with one link.
bool has_ranks(const Machine& machine) {
  return machine.nvlink.bytes_per_second == 0;
}

bool is_gpu(const Machine& machine) {
  return machine.name == "gpu";
}

std::vector<std::string> keys_of(const Machine& machine) {
  if (is_gpu(machine)) return {"gpus", "nic", "link", "latency", "memory", "device"};
  if (has_ranks(machine)) return {"nic", "memory", "device"};
  return {"gpus", "nvlink", "nic", "memory", "device"};
}

const Machine& find_machine(std::string_view name, std::string_view text) {
  const auto found =
      std::find_if(kMachines.begin(), kMachines.end(), [&](const Machine& machine) { return machine.name == name; });
  if (found == kMachines.end()) {
    fail("cluster '{}': '{}' is no preset{}", text, name, suggestion(name, cluster_preset_names()));
  }
  return *found;
}

void add_key(Keys& keys, const std::string& item, const Machine& machine, std::string_view text) {
  const auto equals = item.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == item.size()) {
    fail("cluster '{}': '{}' is not key=value", text, item);
  }
  const std::string key = item.substr(0, equals);
  const std::vector<std::string> allowed = keys_of(machine);
  if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
    if (key == "gpus" || key == "nvlink") {
      fail("cluster '{}': key '{}' does not apply to {}: a rank is a node of its own with one link", text, key,
           machine.name);
    }
    fail("cluster '{}': key '{}' is not known{}", text, key, suggestion(key, allowed));
  }
  if (!keys.emplace(key, item.substr(equals + 1)).second) fail("cluster '{}': key '{}' is given twice", text, key);
}

// Returns the value of a key as `parse` reads it, or nothing where the key was not given.
template <class Parse>
auto value_of(const Keys& keys, const std::string& key, std::string_view text, Parse parse) {
  using Value = decltype(parse(std::string_view{}, std::string_view{}));
  const auto found = keys.find(key);
  if (found == keys.end()) return std::optional<Value>{};
  return std::optional<Value>{parse(found->second, fmt::format("cluster '{}': {}", text, key))};
}

std::int64_t count_in(std::int64_t value, std::int64_t high, std::string_view what) {
  if (value < 1 || value > high) fail("{} {} is not in 1..{}", what, value, high);
  return value;
}

Device device_of(const Machine& machine, const Keys& keys, std::string_view text) {
  const auto named = value_of(keys, "device", text, [](std::string_view name, std::string_view what) {
    const std::vector<std::string> names = device_names();
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      fail("{}: '{}' is not known{}", what, name, suggestion(name, names));
    }
    return device_profile(name);
  });
  Device device = named ? *named : device_profile(machine.device);
  // A number alone is bytes, and a small one GiB whose unit was forgotten.
  const auto size_with_unit = [](std::string_view size, std::string_view what) {
    const Bytes bytes = parse_bytes(size, what);
    const bool alone = size.find_first_not_of("0123456789") == std::string_view::npos;
    if (alone && bytes.value < 1 << 20) fail("{}: '{}' are bytes; give a size such as 80GiB", what, size);
    return bytes;
  };
  if (const auto memory = value_of(keys, "memory", text, size_with_unit)) device.memory = *memory;
  return device;
}

// Ranks that share a GPU have as much less of it: of its SMs, its memory and what that carries.
void share_gpus(std::int64_t ranks, std::int64_t gpus, Device& device) {
  if (ranks <= gpus) return;
  const double share = static_cast<double>(gpus) / static_cast<double>(ranks);
  for (double* const rate :
       {&device.matrix_tflops_16, &device.matrix_tflops_32, &device.matrix_tflops_8, &device.matrix_tflops_4,
        &device.vector_tflops_32, &device.memory_bandwidth.bytes_per_second}) {
    *rate *= share;
  }
  device.memory = {device.memory.value * gpus / ranks};
  device.compute_units = static_cast<int>(device.compute_units * gpus / ranks);
}

// Ranks that are paced to a link have partitions of one GPU. A copy between them waits until its time is over, so
// compute beside it does not slow it down.
void partition_gpu(std::int64_t ranks, std::string_view text, Device& device) {
  const int partitions = device.compute_units / kUnitsPerPartition;
  if (ranks > partitions) {
    fail("cluster '{}': link: the {} SMs of one {} make {} partitions of {}, not {}", text, device.compute_units,
         device.name, partitions, kUnitsPerPartition, ranks);
  }
  const int units = static_cast<int>(partitions / ranks) * kUnitsPerPartition;
  const double share = static_cast<double>(units) / device.compute_units;
  for (double* const rate : {&device.matrix_tflops_16, &device.matrix_tflops_32, &device.matrix_tflops_8,
                             &device.matrix_tflops_4, &device.vector_tflops_32}) {
    *rate *= share;
  }
  device.memory_bandwidth.bytes_per_second /= static_cast<double>(ranks);
  device.memory = {device.memory.value / ranks};
  device.compute_units = units;
  device.transfer_slowdown = 0;
}

bool is_paced(const Keys& keys) {
  return keys.contains("link");
}

void check_paced(const Keys& keys, std::string_view text) {
  if (!is_paced(keys)) {
    if (keys.contains("latency")) fail("cluster '{}': latency: is of link=, a link that is emulated", text);
    return;
  }
  for (const char* key : {"gpus", "nic"}) {
    if (keys.contains(key)) {
      fail("cluster '{}': {} and link are given: with link=, ranks are partitions of one GPU with that link alone",
           text, key);
    }
  }
}

// The emulated link of each rank.
LevelSpec paced_level(const Keys& keys, std::string_view text) {
  return {.name = "link",
          .joins = Domain::cluster,
          .via = {},
          .bandwidth = *value_of(keys, "link", text, parse_bandwidth),
          .latency = value_of(keys, "latency", text, parse_time).value_or(kNvlinkLatency)};
}

std::vector<LevelSpec> levels_of(const Machine& machine, std::int64_t devices, const Keys& keys,
                                 std::string_view text) {
  if (is_paced(keys)) return {paced_level(keys, text)};
  std::vector<LevelSpec> levels;
  LevelSpec nic{.name = "nic",
                .joins = Domain::cluster,
                .via = {},
                .bandwidth = machine.nic,
                .latency = has_ranks(machine) ? kLocalLatency : kNicLatency,
                .duplex = Duplex::full,
                .shared_by = std::min(machine.devices_per_nic, devices)};
  if (const auto of_the_node = value_of(keys, "nic", text, parse_bandwidth)) {
    const std::int64_t nics = (devices + nic.shared_by - 1) / nic.shared_by;
    nic.bandwidth = {of_the_node->bytes_per_second / static_cast<double>(nics)};
  }
  if (!has_ranks(machine)) {
    LevelSpec nvlink{
        .name = "nvlink", .joins = Domain::node, .via = {}, .bandwidth = machine.nvlink, .latency = kNvlinkLatency};
    if (const auto given = value_of(keys, "nvlink", text, parse_bandwidth)) nvlink.bandwidth = *given;
    if (devices > machine.bridged && machine.bridged > 0) {
      nvlink.joins = Domain::part;
      nvlink.part = machine.bridged;
    }
    levels.push_back(nvlink);
  }
  if (machine.bridged > 0) {
    levels.push_back({.name = "pcie",
                      .joins = devices > machine.bridged ? Domain::node : Domain::none,
                      .via = {},
                      .bandwidth = kPcieGen4,
                      .latency = kPcieLatency});
    nic.via = {"pcie"};
  }
  if (machine.pcie_limits) {
    levels.push_back({.name = "pcie",
                      .joins = Domain::none,
                      .via = {},
                      .bandwidth = kPcieGen3,
                      .latency = kPcieLatency,
                      .duplex = Duplex::full,
                      .shared_by = std::min(kDevicesPerPcieSwitch, devices)});
    nic.via = {"pcie"};
  }
  levels.push_back(nic);
  return levels;
}

}  // namespace

std::vector<std::string> cluster_preset_names() {
  std::vector<std::string> names;
  for (const Machine& machine : kMachines) names.emplace_back(machine.name);
  return names;
}

ClusterSpec parse_cluster(std::string_view text) {
  const std::vector<std::string> items = split(text, ',');
  const std::string& head = items.front();
  const auto colon = head.find(':');
  const Machine& machine = find_machine(head.substr(0, colon), text);
  if (colon == std::string::npos || colon + 1 == head.size()) {
    fail("cluster '{}': the number of {} is missing; write {}:4", text, has_ranks(machine) ? "ranks" : "nodes",
         machine.name);
  }
  Keys keys;
  for (std::size_t i = 1; i < items.size(); ++i) add_key(keys, items[i], machine, text);

  const std::string nodes_name = fmt::format("cluster '{}': {}", text, has_ranks(machine) ? "ranks" : "nodes");
  ClusterSpec spec;
  spec.name = std::string(text);
  spec.nodes = count_in(parse_integer(head.substr(colon + 1), nodes_name), kMaxNodes, nodes_name);
  const std::int64_t gpus = count_in(value_of(keys, "gpus", text, parse_integer).value_or(machine.devices), kMaxDevices,
                                     fmt::format("cluster '{}': gpus", text));
  spec.devices_per_node = has_ranks(machine) ? 1 : gpus;
  spec.device = device_of(machine, keys, text);
  check_paced(keys, text);
  if (is_paced(keys)) {
    partition_gpu(spec.nodes, text, spec.device);
  } else if (is_gpu(machine)) {
    share_gpus(spec.nodes, gpus, spec.device);
  }
  spec.levels = levels_of(machine, spec.devices_per_node, keys, text);
  if (is_gpu(machine)) spec.execution = is_paced(keys) ? kPacedGpuRanks : kGpuRanks;
  if (has_ranks(machine) && !is_gpu(machine)) spec.execution = kEmulation;
  validate(spec);
  return spec;
}

}  // namespace weft
