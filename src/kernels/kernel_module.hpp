// Opens the module that holds the kernels, at the first call.
#pragma once

#include <string>

#include "kernels/kernel_backend.hpp"

namespace weft {

struct KernelModule {
  const KernelFactory* factory = nullptr;  // none: `problem` says why
  // Sets the number of threads of OpenBLAS, which is one for the process; null where ATen uses another library.
  int (*blas_threads)() = nullptr;
  void (*set_blas_threads)(int) = nullptr;
  std::string problem;
};
const KernelModule& kernel_module();

}  // namespace weft
