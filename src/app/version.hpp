// The version of this build, as CMakeLists.txt states it.
#pragma once

namespace weft {

inline constexpr const char* kVersion = WEFT_VERSION;

}  // namespace weft
