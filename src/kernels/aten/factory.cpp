// What the module exports.
#include <torch/version.h>

#include "kernels/aten/aten_kernels.hpp"

#define WEFT_TEXT_OF(number) #number
#define WEFT_TEXT(number) WEFT_TEXT_OF(number)

extern "C" __attribute__((visibility("default"))) const weft::KernelFactory* weft_kernel_factory() {
  static const weft::KernelFactory factory = {
      .in_words = "libtorch " WEFT_TEXT(TORCH_VERSION_MAJOR) "." WEFT_TEXT(TORCH_VERSION_MINOR) " (cpu)",
      .make = [](const weft::KernelOptions& options) -> weft::KernelBackend* {
        return new weft::aten::AtenKernels(options);
      },
  };
  return &factory;
}
