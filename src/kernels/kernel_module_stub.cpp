// Where Weft was built without libtorch.
#include "kernels/kernel_module.hpp"

namespace weft {

const KernelModule& kernel_module() {
  static const KernelModule none{nullptr, nullptr, nullptr,
                                 "this Weft was built without libtorch (Debian: libtorch-dev), so it cannot train"};
  return none;
}

}  // namespace weft
