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
  std::vector<std::vector<ValueId>> framed(static_cast<std::size_t>(plan.layout.vpp));
  if (plan.layout.vpp == 1) return framed;  // one chunk: copies of its own are as many as are in flight
  std::vector<const IssueBlock*> block_of(plan.graph.operations.size(), nullptr);
  for (const IssueBlock& block : plan.classes[rank_class].blocks) {
    for (const OpId op : block.operations) block_of[op.index()] = &block;
  }
  for (const ValueId id : values) {
    const Lifetime& life = lifetimes[id.index()];
    if (!plan.graph.value(id).per_micro_batch || !life.leaves_block || life.pooled || life.block < 0) continue;
    const IssueBlock& forward = plan.classes[rank_class].blocks[static_cast<std::size_t>(life.block)];
    const auto writes = [&](OpId op) { return in_chain(plan, op) && block_of[op.index()] == &forward; };
    const auto reads = [&](OpId op) {
      return in_chain(plan, op) && block_of[op.index()] != nullptr && block_of[op.index()]->chunk == forward.chunk;
    };
    if (forward.kind == BlockKind::forward && std::all_of(life.writers.begin(), life.writers.end(), writes) &&
        std::all_of(life.readers.begin(), life.readers.end(), reads)) {
      framed[static_cast<std::size_t>(forward.chunk)].push_back(id);
    }
  }
  return framed;
}

std::int64_t place_frames(Plan& plan, std::size_t rank_class, const std::vector<std::vector<ValueId>>& values,
                          std::int64_t top) {
  ClassPlan& class_plan = plan.classes[rank_class];
  class_plan.frames.clear();
  std::vector<std::int32_t> frame_of(values.size(), -1);  // by chunk
  std::vector<std::int64_t> size(values.size(), 0);
  for (std::size_t chunk = 0; chunk < values.size(); ++chunk) {
    if (values[chunk].empty()) continue;
    frame_of[chunk] = static_cast<std::int32_t>(class_plan.frames.size());
    class_plan.frames.push_back({std::vector<Bytes>(static_cast<std::size_t>(plan.graph.micro_batches))});
    for (const ValueId id : values[chunk]) {
      plan.placements[id.index()] = {.offset = Bytes{size[chunk]}, .frame = frame_of[chunk]};
      size[chunk] = checked_sum({size[chunk], aligned(plan.graph.value(id).bytes()).value}, kWhat);
    }
  }
  Allocator memory(top);
  for (const Slot& slot : class_plan.order) {
    const IssueBlock& block = block_of(class_plan, slot);
    const auto chunk = static_cast<std::size_t>(block.chunk);
    if (block.chunk < 0 || frame_of[chunk] < 0) continue;
    Bytes& base =
        class_plan.frames[static_cast<std::size_t>(frame_of[chunk])].base[static_cast<std::size_t>(slot.micro_batch)];
    if (block.kind == BlockKind::forward && slot.begin == 0) base = Bytes{memory.take(size[chunk])};
    if (ends_pass(block.kind) && ends_block(class_plan, slot)) memory.free(base.value);
  }
  return memory.highest();
}

}  // namespace weft
