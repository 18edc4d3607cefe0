// Opens a library that is loaded when it is first needed.
#pragma once

#include <string>

namespace weft {

struct ModulePlaces {
  std::string installed_at;  // below the folder that holds the program's folder; looked at first
  std::string built_at;
};
struct OpenedModule {
  void* handle = nullptr;  // none: `problem` says why
  std::string path, problem;
};
// It stays until the process ends: threads and caches of libtorch, say, do not survive being unloaded.
OpenedModule open_module(const std::string& what, const ModulePlaces& places);

}  // namespace weft
