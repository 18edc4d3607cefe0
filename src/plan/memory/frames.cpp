#include "plan/memory/frames.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace weft {
namespace {

constexpr const char* kWhat = "memory of the plan";

bool in_chain(const Plan& plan, OpId op) {
  const Issue& issue = plan.issues[op.index()];
  return issue.queue == 0 || issue.blocking;
}

// Blocks come in pairs, forward and backward of a model chunk, and the update comes last (order_blocks).
bool is_forward(std::size_t block, std::size_t blocks) {
  return block % 2 == 0 && block + 1 < blocks;
}

// First fit over what is in use, which is kept by address.
class Allocator {
 public:
  explicit Allocator(std::int64_t first) : first_(first), highest_(first) {}

  std::int64_t take(std::int64_t size) {
    std::int64_t at = first_;
    auto where = used_.begin();
    for (; where != used_.end() && where->begin < at + size; ++where) at = where->end;
    used_.insert(where, {at, checked_sum({at, size}, kWhat)});
    highest_ = std::max(highest_, at + size);
    return at;
  }
  void free(std::int64_t begin) {
    std::erase_if(used_, [&](const Used& used) { return used.begin == begin; });
  }
  std::int64_t highest() const { return highest_; }

 private:
  struct Used {
    std::int64_t begin, end;
  };
  std::int64_t first_, highest_;
  std::vector<Used> used_;
};

}  // namespace

std::vector<std::vector<ValueId>> framed_values(const Plan& plan, std::size_t rank_class,
                                                const std::vector<ValueId>& values,
                                                const std::vector<Lifetime>& lifetimes) {
  const std::vector<IssueBlock>& blocks = plan.classes[rank_class].blocks;
  std::vector<std::vector<ValueId>> framed(blocks.size());
  if (plan.layout.vpp == 1) return framed;  // one chunk: copies of its own are as many as are in flight
  std::vector<std::int32_t> block_of(plan.graph.operations.size(), -1);
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    for (const OpId op : blocks[b].operations) block_of[op.index()] = static_cast<std::int32_t>(b);
  }
  for (const ValueId id : values) {
    const Lifetime& life = lifetimes[id.index()];
    if (!plan.graph.value(id).per_micro_batch || !life.leaves_block || life.pooled || life.block < 0) continue;
    const auto block = static_cast<std::size_t>(life.block);
    const auto fits = [&](OpId op, std::int32_t last) {
      return in_chain(plan, op) && block_of[op.index()] >= life.block && block_of[op.index()] <= last;
    };
    const bool framed_here =
        is_forward(block, blocks.size()) &&
        std::all_of(life.writers.begin(), life.writers.end(), [&](OpId op) { return fits(op, life.block); }) &&
        std::all_of(life.readers.begin(), life.readers.end(), [&](OpId op) { return fits(op, life.block + 1); });
    if (framed_here) framed[block].push_back(id);
  }
  return framed;
}

std::int64_t place_frames(Plan& plan, std::size_t rank_class, const std::vector<std::vector<ValueId>>& values,
                          std::int64_t top) {
  ClassPlan& class_plan = plan.classes[rank_class];
  class_plan.frames.clear();
  std::vector<std::int32_t> frame_of(values.size(), -1);  // by block
  std::vector<std::int64_t> size(values.size(), 0);
  for (std::size_t block = 0; block < values.size(); ++block) {
    if (values[block].empty()) continue;
    frame_of[block] = static_cast<std::int32_t>(class_plan.frames.size());
    class_plan.frames.push_back({std::vector<Bytes>(static_cast<std::size_t>(plan.graph.micro_batches))});
    for (const ValueId id : values[block]) {
      plan.placements[id.index()] = {.offset = Bytes{size[block]}, .frame = frame_of[block]};
      size[block] = checked_sum({size[block], aligned(plan.graph.value(id).bytes()).value}, kWhat);
    }
  }
  Allocator memory(top);
  for (const Slot& slot : class_plan.order) {
    if (slot.micro_batch < 0) continue;
    const bool forward = is_forward(static_cast<std::size_t>(slot.block), values.size());
    const auto block = static_cast<std::size_t>(forward ? slot.block : slot.block - 1);
    if (frame_of[block] < 0) continue;
    Bytes& base =
        class_plan.frames[static_cast<std::size_t>(frame_of[block])].base[static_cast<std::size_t>(slot.micro_batch)];
    if (forward) {
      if (slot.begin == 0) base = Bytes{memory.take(size[block])};
    } else if (ends_block(class_plan, slot)) {
      memory.free(base.value);
    }
  }
  return memory.highest();
}

}  // namespace weft
