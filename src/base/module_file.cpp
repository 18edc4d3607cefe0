#include "base/module_file.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>

namespace weft {

OpenedModule open_module(const std::string& what, const ModulePlaces& places) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::array<std::filesystem::path, 2> candidates = {program.parent_path().parent_path() / places.installed_at,
                                                           places.built_at};
  for (const std::filesystem::path& path : candidates) {
    if (!std::filesystem::exists(path, ignored)) continue;
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == nullptr) return {nullptr, path, fmt::format("{} cannot be loaded: {}", what, dlerror())};
    return {handle, path, ""};
  }
  return {nullptr, "",
          fmt::format("{} are missing: neither {} nor {}", what, candidates[0].string(), candidates[1].string())};
}

}  // namespace weft
