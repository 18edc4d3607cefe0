// The experts' slots on a rank: how they lie, and which of them an operation works on.
#pragma once

#include <span>
#include <vector>

#include "exec/rank_view.hpp"
#include "kernels/experts.hpp"

namespace weft {

GateShape gate_shape(const RankView& view);

// What the experts of this rank work on: blocks from all ranks whose tokens come here, in a matrix with so many rows.
ExpertBlocks blocks_of(const RankView& view, const Operation& op, const Matrix& rows);

// The rows of every block that an operation or a part of it works on, by source and expert.
class SlotUse {
 public:
  SlotUse() = default;  // all rows
  // A part of every expert's capacity.
  static SlotUse of_capacity(std::int64_t blocks, ElementRange rows);
  // Those that tokens have: data, so it is looked up at every call of windows().
  static SlotUse of_tables(std::vector<ExpertTable*> tables, std::int64_t blocks);

  // By source and expert; empty: all rows.
  std::span<const ElementRange> windows();
  const std::vector<ExpertTable*>& tables() const { return tables_; }
  bool is_data() const { return is_data_; }
  bool is_fixed() const { return !is_data_ && !windows_.empty(); }

 private:
  std::vector<ExpertTable*> tables_;
  std::vector<ElementRange> windows_;
  bool is_data_ = false;
};
// Throws Error where `weft run` cannot carry it out yet.
SlotUse slot_use(const RankView& view, const Operation& op, std::int32_t micro_batch, const Origin& part);

// Calls visit(rows) with the stretches of rows in use.
template <class Visit>
void for_each_used(const ExpertBlocks& blocks, SlotUse& use, const Visit& visit) {
  const std::span<const ElementRange> windows = use.windows();
  if (windows.empty()) return visit(ElementRange{0, blocks.rows()});
  for (std::size_t block = 0; block < windows.size(); ++block) {
    const std::int64_t first = static_cast<std::int64_t>(block) * blocks.capacity;
    if (!windows[block].empty()) visit(ElementRange{first + windows[block].begin, first + windows[block].end});
  }
}

}  // namespace weft
