// Looks for the module beside an installed program first, then where it was built.
#include "kernels/kernel_module.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>

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

KernelModule open_module() {
  if (!processor_suffices()) return {nullptr, nullptr, nullptr, "the kernels need a processor with AVX2 and FMA"};
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::array<std::filesystem::path, 2> candidates = {
      program.parent_path().parent_path() / WEFT_KERNELS_INSTALLED_AT, WEFT_KERNELS_BUILT_AT};
  for (const std::filesystem::path& path : candidates) {
    if (!std::filesystem::exists(path, ignored)) continue;
    // Kept until the process ends: libtorch's threads and caches do not survive being unloaded.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr)
      return {nullptr, nullptr, nullptr, fmt::format("the kernels cannot be loaded: {}", dlerror())};
    const auto factory = reinterpret_cast<const KernelFactory* (*)()>(dlsym(handle, kKernelFactorySymbol));
    if (factory == nullptr)
      return {nullptr, nullptr, nullptr, fmt::format("{}: not a module of kernels", path.string())};
    const auto blas_threads = reinterpret_cast<int (*)()>(dlsym(handle, "openblas_get_num_threads"));
    const auto set_blas_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads"));
    return {factory(), blas_threads, set_blas_threads, ""};
  }
  return {nullptr, nullptr, nullptr,
          fmt::format("the kernels are missing: neither {} nor {}", candidates[0].string(), candidates[1].string())};
}

}  // namespace

const KernelModule& kernel_module() {
  static const KernelModule module = open_module();
  return module;
}

}  // namespace weft
