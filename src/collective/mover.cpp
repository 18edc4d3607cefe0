#include "collective/mover.hpp"

#include <fmt/format.h>

namespace weft {

std::string in_words(const Mover& mover) {
  if (mover.copy_engine && mover.thread_blocks == 0) return "copy engine";
  if (mover.thread_blocks == 0) return "library";
  return fmt::format("{}{} thread block{}", mover.copy_engine ? "copy engine and " : "", mover.thread_blocks,
                     mover.thread_blocks == 1 ? "" : "s");
}

}  // namespace weft
