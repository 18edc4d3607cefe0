// NCCL and CUDA take long to load and are missing on most machines, so they are linked to a module that is opened at
// the first use: beside an installed program first, then where it was built.
#include <dlfcn.h>

#include <array>
#include <filesystem>

#include "base/error.hpp"
#include "comm/nccl/nccl_collectives.hpp"

namespace weft {
namespace {

std::unique_ptr<NcclLinks> open_links(const NcclOptions& options) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::array<std::filesystem::path, 2> candidates = {program.parent_path().parent_path() / WEFT_NCCL_INSTALLED_AT,
                                                           WEFT_NCCL_BUILT_AT};
  for (const std::filesystem::path& path : candidates) {
    if (!std::filesystem::exists(path, ignored)) continue;
    // Kept until the process ends: threads of NCCL and CUDA do not survive being unloaded.
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) fail("NCCL cannot be loaded: {}", dlerror());
    const auto make = reinterpret_cast<MakeNcclLinks>(dlsym(handle, kNcclLinksSymbol));
    if (make == nullptr) fail("{}: not Weft's module for NCCL", path.string());
    return std::unique_ptr<NcclLinks>(make(options));
  }
  fail("Weft's module for NCCL is missing: neither {} nor {}", candidates[0].string(), candidates[1].string());
}

}  // namespace

std::unique_ptr<StreamCollectives> make_nccl_collectives(const NcclOptions& options, Exchange exchange) {
  return collectives_over(options, std::move(exchange), [&] { return open_links(options); });
}

}  // namespace weft
