// One rank's shard of a checkpoint: copied item by item (a parameter with its moments, a factor of its curvature) while
// it trains, written as a whole afterwards.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/checkpoint/manifest.hpp"
#include "exec/checkpoint/owned_pieces.hpp"
#include "exec/safetensors.hpp"

namespace weft {

class ShardWriter {
 public:
  // `memory`: where the pieces lie. It must outlive this.
  ShardWriter(const RankMemory& memory, std::vector<OwnedPiece> pieces, std::size_t items, std::int64_t rank,
              std::string run_id);

  // Copies what the rank owns of an item. Allocates nothing.
  void copy(std::size_t item);
  // Writes what was copied, the state after `step` steps, to `partial`, made where it is missing, and announces it.
  // When it returns, it is on disk. Throws Error naming the file.
  void write(const std::filesystem::path& partial, std::int64_t step) const;
  std::int64_t bytes() const { return shard_.bytes; }

 private:
  struct Copy {
    Vector from;
    std::size_t to;  // in copies_
  };
  const RankMemory* memory_;
  std::int64_t rank_;
  StoredFile shard_;  // checksum not yet known
  std::string run_id_;
  std::vector<TensorHeading> headings_;
  std::size_t opening_bytes_ = 0;  // the same whatever the step
  std::vector<std::vector<Copy>> by_item_;
  std::size_t elements_ = 0;
  std::unique_ptr<float[]> copies_;
};

}  // namespace weft
