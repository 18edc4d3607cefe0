// What a module for a kind of device hands over.
#pragma once

#include <memory>

#include "kernels/device.hpp"
#include "kernels/kernel_backend.hpp"

namespace weft {

// The kernels with all that callers promise checked before each.
using CheckKernels = std::unique_ptr<Kernels>(std::unique_ptr<KernelBackend> backend);
CheckKernels checked_kernels;

struct DeviceFactory {
  Device* (*make)(const DeviceOptions& options, CheckKernels* checked);  // the caller owns it
};

// extern "C" const DeviceFactory* weft_device_factory()
inline constexpr const char* kDeviceFactorySymbol = "weft_device_factory";

}  // namespace weft
