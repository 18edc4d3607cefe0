#include "planner/schedule/pipeline_bytes.hpp"

#include <algorithm>
#include <vector>

#include "graph/op_lists.hpp"
#include "plan/memory/lifetimes.hpp"
#include "planner/schedule/blocks.hpp"

namespace weft {
namespace {

// A forward, or one of the halves of a backward: the earlier kind comes first.
BlockKind pass_of(const Operation& op, const Layout& layout) {
  return op.phase == Phase::forward ? BlockKind::forward : half_of_backward(op, layout);
}

// What is written and read within one pass lives there from its first writer to its last reader, in the order of the
// model.
class Scratch {
 public:
  explicit Scratch(std::size_t operations) : changes_(operations + 1, 0) {}
  void add(OpId first, OpId last, std::int64_t bytes) {
    changes_[first.index()] += bytes;
    changes_[last.index() + 1] -= bytes;
  }
  std::int64_t most() const {
    std::int64_t now = 0, most = 0;
    for (const std::int64_t change : changes_) most = std::max(most, now += change);
    return most;
  }

 private:
  std::vector<std::int64_t> changes_;
};

class BytesOfClass {
 public:
  BytesOfClass(const Plan& plan, const OpLists& writers, const OpLists& readers, const std::vector<ValueId>& storage)
      : plan_(plan), writers_(writers), readers_(readers), storage_(storage) {}

  // Adds what passes of a class hold to `passes`, by chunk and slice, and returns what is left for them.
  std::int64_t add(ClassId rank_class, std::vector<PassBytes>& passes) const {
    std::vector<Scratch> scratch(kBlockKinds, Scratch(plan_.graph.operations.size()));
    std::int64_t persists = 0;
    for (const ValueId id : plan_.graph.values.ids()) {
      const Value& value = plan_.graph.value(id);
      if (value.rank_class != rank_class || storage_[id.index()] != id) continue;
      const std::int64_t bytes = aligned(value.bytes()).value;
      if (!value.per_micro_batch) {
        persists += bytes;
      } else if (!writers_[id.index()].empty()) {
        add_value(id, bytes, passes, scratch);
      }
    }
    const auto most = [&](BlockKind pass) { return scratch[static_cast<std::size_t>(pass)].most(); };
    // Weight gradients may run between the operations of the others.
    const std::int64_t most_scratch =
        std::max(most(BlockKind::forward), most(BlockKind::input_grad)) + most(BlockKind::weight_grad);
    return plan_.graph.classes[rank_class].device.memory.value - persists - most_scratch;
  }

 private:
  void add_value(ValueId id, std::int64_t bytes, std::vector<PassBytes>& passes, std::vector<Scratch>& scratch) const {
    const OpId writer = writers_[id.index()].front();
    const Operation& written_by = plan_.graph.op(writer);
    const BlockKind begins = pass_of(written_by, plan_.layout);
    BlockKind ends = begins;
    OpId last = writer;
    for (const OpId reader : readers_[id.index()]) {
      ends = std::max(ends, pass_of(plan_.graph.op(reader), plan_.layout));
      last = std::max(last, reader);
    }
    const std::int64_t slices = plan_.layout.slices();
    PassBytes& pass = passes[written_by.chunk * slices + (plan_.layout.has_slices() ? written_by.turn : 0)];
    if (begins == ends) {
      scratch[static_cast<std::size_t>(begins)].add(writer, last, bytes);
      return;
    }
    if (begins == BlockKind::forward) pass.forward += bytes;
    if (ends == BlockKind::weight_grad) pass.input_grad += bytes;
  }

  const Plan& plan_;
  const OpLists &writers_, &readers_;
  const std::vector<ValueId>& storage_;
};

}  // namespace

void estimate_bytes(const Plan& plan, std::int64_t percent, PipelineProblem& problem) {
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  const std::vector<ValueId> storage = find_storage(plan);
  const BytesOfClass of_class(plan, writers, readers, storage);
  const PipelineShape& shape = problem.shape;
  problem.bytes.assign(problem.times.size(), {});
  problem.room.assign(static_cast<std::size_t>(shape.stages), INT64_MAX / 2);
  for (const ClassId c : plan.graph.classes.ids()) {
    std::vector<PassBytes> passes(static_cast<std::size_t>(shape.chunks * shape.slices));
    const std::int64_t stage = plan.graph.classes[c].stage;
    std::int64_t& room = problem.room[static_cast<std::size_t>(stage)];
    room = std::min(room, of_class.add(c, passes) * percent / 100);
    for (std::int64_t i = 0; i < std::ssize(passes); ++i) {
      const std::int64_t number = shape.number_of(stage, i / shape.slices);
      PassBytes& most = problem.bytes[static_cast<std::size_t>(number * shape.slices + i % shape.slices)];
      const PassBytes& own = passes[static_cast<std::size_t>(i)];
      most = {std::max(most.forward, own.forward), std::max(most.input_grad, own.input_grad)};
    }
  }
}

}  // namespace weft
