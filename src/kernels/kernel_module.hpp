// Opens the module that holds the kernels, at the first call.
#pragma once

#include <string>

#include "kernels/kernel_table.hpp"

namespace weft {

struct KernelModule {
  const KernelTable* table = nullptr;       // none: `problem` says why
  void (*set_blas_threads)(int) = nullptr;  // of OpenBLAS, whose number is one for the process; none: not OpenBLAS
  std::string problem;
};
const KernelModule& kernel_module();

}  // namespace weft
