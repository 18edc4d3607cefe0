// The table of known accelerators. Matrix figures are dense peaks (no sparsity), as the vendors print them.
#include "cluster/device.hpp"

#include <array>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

// The "GB" of a device memory are binary, to about one percent: an "80 GB" H100 shows 79.6 GiB.
constexpr Bytes gibibytes(std::int64_t n) {
  return {n << 30};
}
constexpr Bandwidth gigabytes_per_second(double n) {
  return {n * 1e9};
}

// What overlap costs on GPUs: Hetu-Galvatron measured on its A100 machine that computation and communication
// each take 1.1255 times longer while the other runs. For every accelerator until a profile says otherwise.
constexpr double kMeasuredOverlap = 0.1255;

struct Row {
  std::string_view name;
  double matrix_tflops_16;
  double matrix_tflops_32;
  double vector_tflops_32;
  Bytes memory;
  Bandwidth memory_bandwidth;
  int compute_units;
  double slowdown;  // of compute and of transfers
  double matrix_tflops_8 = 0, matrix_tflops_4 = 0;
};

constexpr std::array kDevices{
    // NVIDIA V100 data sheet, SXM2. No TF32: fp32 matrix products run on the ordinary cores.
    Row{"v100-16", 125, 15.7, 15.7, gibibytes(16), gigabytes_per_second(900), 80, kMeasuredOverlap},
    Row{"v100-32", 125, 15.7, 15.7, gibibytes(32), gigabytes_per_second(900), 80, kMeasuredOverlap},
    // NVIDIA A100 data sheet, SXM4: HBM2 on the 40 GB part, HBM2e on the 80 GB part.
    Row{"a100-40", 312, 156, 19.5, gibibytes(40), gigabytes_per_second(1555), 108, kMeasuredOverlap},
    Row{"a100-80", 312, 156, 19.5, gibibytes(80), gigabytes_per_second(2039), 108, kMeasuredOverlap},
    // The same data sheet, PCIe card. It may draw 300 W, so over a step its clock is lower than the SXM part's.
    Row{"a100-80-pcie", 312, 156, 19.5, gibibytes(80), gigabytes_per_second(1935), 108, kMeasuredOverlap},
    // NVIDIA H100 data sheet, SXM5; its tensor-core figures are halved, they count 2:4 sparsity.
    Row{"h100", 989, 494, 67, gibibytes(80), gigabytes_per_second(3350), 132, kMeasuredOverlap, 1979},
    // The export variant of the H100: the same computation; its NVLink, 200 GB/s per direction, is a matter
    // of the cluster.
    Row{"h800", 989, 494, 67, gibibytes(80), gigabytes_per_second(3350), 132, kMeasuredOverlap, 1979},
    // NVIDIA H200 data sheet, SXM: the computation of an H100 with more and faster memory.
    Row{"h200", 989, 494, 67, gibibytes(141), gigabytes_per_second(4800), 132, kMeasuredOverlap, 1979},
    // NVIDIA HGX B200 data sheet (1,000 W), an eighth of the machine's dense figures. The GPU shows 148 SMs; of its
    // 192 GB 180 are in use.
    Row{"b200", 2250, 1100, 75, gibibytes(180), gigabytes_per_second(7700), 148, kMeasuredOverlap, 4500, 9000},
    // NVIDIA GB200 NVL72 data sheet (1,200 W), a 72nd of the rack's dense figures.
    Row{"gb200", 2500, 1250, 80, gibibytes(186), gigabytes_per_second(8000), 148, kMeasuredOverlap, 5000, 10000},
    // NVIDIA GB300 NVL72 data sheet (1,400 W), likewise: as GB200 but for fp4, of which it has half as much again.
    Row{"gb300", 2500, 1250, 80, gibibytes(279), gigabytes_per_second(8000), 148, kMeasuredOverlap, 5000, 15000},
    // Huawei's Atlas 800T A2 comes with parts of 313 and 376 TFLOP/s in fp16; this is the larger. No full data
    // sheet is public: 94 in fp32, 24 cores and 1.6 TB/s are as reported, and the vector figure is
    // 48 vector cores x 64 lanes x 2 x 1.8 GHz.
    Row{"ascend-910b", 376, 94, 11, gibibytes(64), gigabytes_per_second(1600), 24, kMeasuredOverlap},
    // One core of an ordinary server, an order of magnitude only: calibration replaces every figure. Matrix
    // products in 16 bits are converted to fp32 and gain nothing. Links are paced by timers, so nothing
    // interferes.
    Row{"cpu", 0.03, 0.03, 0.003, gibibytes(4), gigabytes_per_second(10), 1, 0},
};

}  // namespace

Nanos memory_time(const Device& device, MemoryWork work, Bytes bytes, double slowdown) {
  const double accesses = work == MemoryWork::copy ? 2 : 3;
  return nanos_from_seconds(accesses * static_cast<double>(bytes.value) * slowdown /
                            device.memory_bandwidth.bytes_per_second);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Row& row : kDevices) names.emplace_back(row.name);
  return names;
}

Device device_profile(std::string_view name) {
  for (const Row& row : kDevices) {
    if (row.name != name) continue;
    return {.name = std::string(name),
            .matrix_tflops_16 = row.matrix_tflops_16,
            .matrix_tflops_32 = row.matrix_tflops_32,
            .matrix_tflops_8 = row.matrix_tflops_8,
            .matrix_tflops_4 = row.matrix_tflops_4,
            .vector_tflops_32 = row.vector_tflops_32,
            .memory = row.memory,
            .memory_bandwidth = row.memory_bandwidth,
            .compute_units = row.compute_units,
            .compute_slowdown = row.slowdown,
            .transfer_slowdown = row.slowdown};
  }
  fail("device '{}' is not known{}", name, suggestion(name, device_names()));
}

}  // namespace weft
