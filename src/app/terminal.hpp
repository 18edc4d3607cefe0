// Finds whether output goes to a terminal, how wide that is and whether it shows colours.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "base/table.hpp"

namespace weft {

// Where progress bars are drawn: `err` where it is a terminal, else null.
inline std::ostream* terminal_of(std::ostream& err) {
  return &err == &std::cerr && ::isatty(STDERR_FILENO) == 1 ? &err : nullptr;
}

// How many columns a table may have there: all that it has where the output is a file or a pipe, which programs read.
inline std::size_t columns_of(const std::ostream& out) {
  constexpr std::size_t kLeast = 40;
  winsize size{};
  const bool is_terminal = &out == &std::cout && ::isatty(STDOUT_FILENO) == 1;
  if (!is_terminal || ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kAnyWidth;
  return std::max(kLeast, static_cast<std::size_t>(size.ws_col));
}

// Whether colours are shown there: on a terminal, unless NO_COLOR is set (no-color.org) or the terminal is a dumb one.
inline bool shows_colours(const std::ostream& out) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return columns_of(out) != kAnyWidth && (no_color == nullptr || *no_color == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace weft
