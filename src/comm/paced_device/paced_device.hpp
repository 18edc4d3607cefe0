// What one rank needs of its GPU for paced collectives, as plain calls. The module that links CUDA implements it; tests
// do so in the memory of the host.
#pragma once

#include <memory>
#include <span>

#include "comm/nccl/nccl_links.hpp"
#include "comm/paced_device/paced_launch.hpp"

namespace weft {

class PacedDevice {
 public:
  virtual ~PacedDevice() = default;

  // Zeros, in memory of the device, for the kernels of all ranks of this process.
  virtual std::shared_ptr<std::byte> share(std::int64_t bytes) = 0;
  // The same in memory of the host, which sees what kernels write and they what it writes.
  virtual std::shared_ptr<std::byte> share_with_host(std::int64_t bytes) = 0;

  virtual std::byte* allocate(std::int64_t bytes) = 0;  // NcclLinks::allocate, copy, reduce
  virtual void copy(std::span<const DeviceCopy> copies, void* stream) = 0;
  virtual void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void* stream) = 0;
  virtual void launch(const PacedLaunch& launch, void* stream) = 0;
};

// extern "C" PacedDevice* weft_make_paced_device(): of the thread's current context; the caller owns it. Throws Error.
inline constexpr const char* kPacedDeviceSymbol = "weft_make_paced_device";
using MakePacedDevice = PacedDevice* (*)();

}  // namespace weft
