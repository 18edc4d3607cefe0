// What a module for a kind of device hands over.
#pragma once

#include <memory>

#include "kernels/accelerator.hpp"
#include "kernels/kernel_backend.hpp"

namespace weft {

// The kernels with all that callers promise checked before each.
using CheckKernels = std::unique_ptr<Kernels>(std::unique_ptr<KernelBackend> backend);
CheckKernels checked_kernels;

struct AcceleratorFactory {
  Accelerator* (*make)(const AcceleratorOptions& options, CheckKernels* checked);  // the caller owns it
};

// extern "C" const AcceleratorFactory* weft_accelerator_factory()
inline constexpr const char* kAcceleratorFactorySymbol = "weft_accelerator_factory";

}  // namespace weft
