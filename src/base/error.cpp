#include "base/error.hpp"

#include <cstdio>
#include <cstdlib>

namespace weft {

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "weft: broken invariant: %s (%s:%d)\n", expression, file, line);
  std::abort();
}

}  // namespace weft
