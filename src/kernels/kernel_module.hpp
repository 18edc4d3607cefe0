// Opens the module that holds the kernels, at the first call.
#pragma once

#include <string>

#include "kernels/kernel_backend.hpp"

namespace weft {

struct KernelModule {
  const KernelFactory* factory = nullptr;  // none: `problem` says why
  // Of OpenBLAS, whose number of threads is one for the process; none where ATen uses another library.
  int (*blas_threads)() = nullptr;
  void (*set_blas_threads)(int) = nullptr;
  std::string problem;
};
const KernelModule& kernel_module();

}  // namespace weft
