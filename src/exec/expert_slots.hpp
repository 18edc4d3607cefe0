// Knows how the experts' slots lie on a rank, and which of them an operation works on.
#pragma once

#include <span>
#include <vector>

#include "exec/rank_view.hpp"
#include "kernels/experts.hpp"

namespace weft {

GateShape gate_shape(const RankView& view, const Operation& gate);

// Returns what the experts of this rank work on: blocks from all ranks whose tokens come here, in a matrix of these
// rows.
CapacityBlocks blocks_of(const RankView& view, const Operation& op, const Matrix& rows);

// Knows by source and expert which rows of a block an operation or a part of it works on.
class SlotUse {
 public:
  SlotUse() = default;  // all rows
  // Uses a part of every expert's capacity.
  static SlotUse of_capacity(std::int64_t blocks, ElementRange rows);
  // Uses the slots that tokens have. They are data, so they are looked up at every call of ranges().
  static SlotUse of_tables(std::vector<ExpertTable*> tables, std::int64_t blocks);

  // Returns the rows by source and expert; nothing means all rows.
  std::span<const ElementRange> ranges();
  const std::vector<ExpertTable*>& tables() const { return tables_; }
  bool is_data() const { return is_data_; }
  bool is_fixed() const { return !is_data_ && !ranges_.empty(); }

 private:
  std::vector<ExpertTable*> tables_;
  std::vector<ElementRange> ranges_;
  bool is_data_ = false;
};
// Throws Error where `weft run` cannot carry it out yet.
SlotUse slot_use(const RankView& view, const Operation& op, MicroBatch micro_batch, const Origin& part);

// Calls visit(rows) with the stretches of rows in use.
template <class Visit>
void for_each_used(const CapacityBlocks& blocks, SlotUse& use, const Visit& visit) {
  const std::span<const ElementRange> ranges = use.ranges();
  if (ranges.empty()) return visit(ElementRange{0, blocks.rows()});
  for (std::size_t block = 0; block < ranges.size(); ++block) {
    const std::int64_t first = static_cast<std::int64_t>(block) * blocks.capacity;
    if (!ranges[block].empty()) visit(ElementRange{first + ranges[block].begin, first + ranges[block].end});
  }
}

}  // namespace weft
