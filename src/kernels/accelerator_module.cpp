#include "kernels/accelerator_module.hpp"

#include <dlfcn.h>

#include "base/module_file.hpp"

namespace weft {

std::unique_ptr<Accelerator> make_cuda_accelerator(const AcceleratorOptions& options) {
  static const OpenedModule opened = open_module("the kernels for CUDA", {WEFT_CUDA_INSTALLED_AT, WEFT_CUDA_BUILT_AT});
  if (opened.handle == nullptr) fail("{}", opened.problem);
  const auto factory =
      reinterpret_cast<const AcceleratorFactory* (*)()>(dlsym(opened.handle, kAcceleratorFactorySymbol));
  if (factory == nullptr) fail("{}: not a module for CUDA", opened.path);
  return std::unique_ptr<Accelerator>(factory()->make(options, checked_kernels));
}

}  // namespace weft
