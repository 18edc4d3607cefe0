// Who moves the bytes of a library's collective on a GPU.
#pragma once

#include <cstdint>
#include <string>

namespace weft {

// Thread blocks of the compute units, or copy engines, which take no units and cannot reduce. Nothing said: as many
// thread blocks as the plan says for all of its transfers, or as the library takes.
struct Mover {
  std::int32_t thread_blocks = 0;
  bool copy_engine = false;
  bool is_library() const { return thread_blocks == 0 && !copy_engine; }
  friend auto operator<=>(const Mover&, const Mover&) = default;
};
// "library", "4 thread blocks", "copy engine".
std::string in_words(const Mover& mover);

}  // namespace weft
