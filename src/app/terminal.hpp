// Finds whether output goes to a terminal.
#pragma once

#include <unistd.h>

#include <iostream>

namespace weft {

// Where progress bars are drawn: `err` where it is a terminal, else null.
inline std::ostream* terminal_of(std::ostream& err) {
  return &err == &std::cerr && ::isatty(STDERR_FILENO) == 1 ? &err : nullptr;
}

}  // namespace weft
