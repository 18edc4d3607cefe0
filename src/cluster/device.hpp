// What one accelerator can do. Figures are the vendor's unless a comment says otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.hpp"

namespace weft {

struct Device {
  std::string name;
  double matrix_tflops_16 = 0;  // dense tensor-core peak in bf16 / fp16
  double matrix_tflops_32 = 0;  // fp32 matrix products (TF32 where the device has it)
  double matrix_tflops_8 = 0;   // products of fp8 operands; 0: it has none
  double matrix_tflops_4 = 0;   // products of NVFP4 operands; 0: it has none
  double vector_tflops_32 = 0;  // element-wise arithmetic in fp32
  Bytes memory;
  Bandwidth memory_bandwidth;
  int compute_units = 0;  // SMs, cores
  // Interference: while a transfer is under way, compute runs (1 + compute_slowdown) times longer, and while compute
  // runs, a transfer takes (1 + transfer_slowdown) times longer.
  double compute_slowdown = 0;
  double transfer_slowdown = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// Work in the device's own memory: a copy reads and writes every byte, a reduction reads two bytes to write one.
enum class MemoryWork { copy, reduce };
Nanos memory_time(const Device& device, MemoryWork work, Bytes bytes, double slowdown = 1);

std::vector<std::string> device_names();
// Throws Error with the nearest name.
Device device_profile(std::string_view name);

}  // namespace weft
