#include "kernels/kernel_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/module_file.hpp"

namespace weft {
namespace {

// The module's loops are compiled for what every x86 server has had since 2013.
bool processor_suffices() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

KernelModule open_kernels() {
  if (!processor_suffices()) return {nullptr, nullptr, nullptr, "the kernels need a processor with AVX2 and FMA"};
  const OpenedModule opened = open_module("the kernels", {WEFT_KERNELS_INSTALLED_AT, WEFT_KERNELS_BUILT_AT});
  if (opened.handle == nullptr) return {nullptr, nullptr, nullptr, opened.problem};
  const auto factory = reinterpret_cast<const KernelFactory* (*)()>(dlsym(opened.handle, kKernelFactorySymbol));
  if (factory == nullptr) return {nullptr, nullptr, nullptr, fmt::format("{}: not a module of kernels", opened.path)};
  const auto blas_threads = reinterpret_cast<int (*)()>(dlsym(opened.handle, "openblas_get_num_threads"));
  const auto set_blas_threads = reinterpret_cast<void (*)(int)>(dlsym(opened.handle, "openblas_set_num_threads"));
  return {factory(), blas_threads, set_blas_threads, ""};
}

}  // namespace

const KernelModule& kernel_module() {
  static const KernelModule module = open_kernels();
  return module;
}

}  // namespace weft
