// A Plan says what a graph is cut and merged into, what is issued in which order to which queue, and where values lie.
// It is plain data: one verifier checks it, simulation and execution take it, files hold it (docs/plan-format.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.hpp"
#include "cluster/cluster.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"
#include "model/transformer.hpp"

namespace weft {

inline constexpr int kPlanVersion = 2;

enum class QueueKind : std::uint8_t { compute, extra, communication };
std::string_view name_of(QueueKind kind);

inline constexpr QueueId kComputeQueue{0};  // of every rank class

// A queue starts its operations in issue order, one after the other.
struct Queue {
  std::string name;
  QueueKind kind = QueueKind::compute;
  friend bool operator==(const Queue&, const Queue&) = default;
};

// Operations that are issued one after the other: the forward pass of a model chunk, its backward pass, the update.
struct IssueBlock {
  BlockKind kind = BlockKind::extra;
  std::int32_t chunk = -1;  // model chunk of the rank; -1: of no single one, as the update
  std::vector<OpId> operations = {};
  std::int32_t slice = -1;  // of sequences that are cut (Layout::slice_tokens); -1: they are not
  friend bool operator==(const IssueBlock&, const IssueBlock&) = default;
};
std::string name_of(const IssueBlock& block);  // "forward 0", "forward 0 slice 2", "update"

// The turn of a block in the issue order, or of a section of it: where two blocks are woven into each other, their
// sections take turns.
struct IssueSlot {
  BlockId block{0};
  MicroBatch micro_batch = kOncePerStep;
  std::int32_t begin = 0;  // position in the block
  std::int32_t end = -1;   // -1: to the end of the block
  friend bool operator==(const IssueSlot&, const IssueSlot&) = default;
};

// A frame is the memory of what a pass of a model chunk, or of a slice, keeps for a later pass. They take turns: a pass
// takes what any of them has freed. `base` says by micro-batch where the frame begins.
struct Frame {
  std::vector<Bytes> base;
  friend bool operator==(const Frame&, const Frame&) = default;
};

struct ClassPlan {
  IdVector<QueueId, Queue> queues;
  IdVector<BlockId, IssueBlock> blocks;
  std::vector<IssueSlot> order;  // issue order of one pass; a queue's order is its share of it
  std::vector<Frame> frames;
  Bytes memory;  // what the placements need
  friend bool operator==(const ClassPlan&, const ClassPlan&) = default;
};

// Returns the first block of a kind, which must be there.
IssueBlock& block_of(ClassPlan& plan, BlockKind kind);
const IssueBlock& block_of(const ClassPlan& plan, BlockKind kind);
const IssueBlock& block_of(const ClassPlan& plan, const IssueSlot& slot);
std::span<const OpId> operations_of(const ClassPlan& plan, const IssueSlot& slot);
// Returns whether the slot ends its block for this micro-batch.
bool ends_block(const ClassPlan& plan, const IssueSlot& slot);
// Returns whether blocks are woven into each other: some slot is a section of a block.
bool has_sections(const ClassPlan& plan);
bool has_pauses(const ClassPlan& plan);
// Returns by block the positions at which a micro-batch pauses there while another passes a section of the same block,
// ascending.
IdVector<BlockId, std::vector<std::int32_t>> pauses_of(const ClassPlan& plan);

// How an operation is issued.
struct Issue {
  QueueId queue = kComputeQueue;  // of its class
  // A transfer that computation waits for: it starts after all compute issued before it, and compute issued after it
  // starts when it has ended.
  bool blocking = false;
  // It is of the iteration before: pass i over the order carries it out for iteration i - 1 (plan/late.hpp).
  bool late = false;
  friend bool operator==(const Issue&, const Issue&) = default;
};

// Values begin at multiples of this, as those of CUDA's allocator do; it is enough for vector loads.
inline constexpr std::int64_t kAlignment = 256;
constexpr Bytes aligned(Bytes bytes) {
  return {(bytes.value + kAlignment - 1) / kAlignment * kAlignment};
}

// Where a value lies in its class's memory. Micro-batch i of a per-micro-batch value lies in copy i mod copies, copies
// one aligned size apart.
struct Placement {
  Bytes offset;
  std::int32_t copies = 1;
  // Whoever writes micro-batch i first waits for the readers of micro-batch i - copies, where one of the two runs
  // beside compute. Without it the order alone must see to that.
  bool waits = false;
  // Index into ClassPlan::frames, or -1. In a frame the offset counts from its base, and micro-batch i lies in base i.
  std::int32_t frame = -1;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// A wait orders what neither data nor queues do: an instance of `operation` starts after one of `until` has ended, as
// a CUDA event between two streams has it. Both are of one class and repeat alike, or one of them runs once a step: an
// `operation` that does waits for the last micro-batch of `until` in the order in which the class issues them, and
// every micro-batch of `operation` waits for an `until` that does.
struct Wait {
  OpId operation;
  OpId until;
  // 0: of the same micro-batch. 1: of the micro-batch before it in the order in which the class issues `operation`; the
  // first of an iteration waits for the last of the previous iteration. Of an `until` that runs once a step: 0, that of
  // the same iteration; 1, of the previous one.
  std::int32_t executions = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// When a task may run that fills idle time. Both bounds are proven (plan/verify/windows.hpp): an instance of
// `operation` starts after `release` has ended, and ends before `deadline` starts. Where both run in every micro-batch,
// that is said of each micro-batch; where one of them runs once a step, of all.
struct TaskWindow {
  OpId operation;
  OpId release;            // of the same step; not valid: none
  OpId deadline;           // not valid: none
  std::int32_t steps = 0;  // 0: the deadline is of the same step. 1: of the next.
  friend bool operator==(const TaskWindow&, const TaskWindow&) = default;
};

inline constexpr std::int32_t kMaxThreadBlocks = 64;  // NCCL has as many channels

struct Plan {
  std::string policy;
  Transformer model;
  ClusterSpec cluster;
  Layout layout;
  StepGraph graph;
  IdVector<ClassId, ClassPlan> classes;
  IdVector<OpId, Issue> issues;
  IdVector<ValueId, Placement> placements;
  std::vector<Wait> waits;
  std::vector<TaskWindow> windows = {};  // of work that fills idle time; an operation may have several
  // Of a GPU, that work on each of its library's collectives beside compute; 0: the library chooses.
  std::int32_t thread_blocks = 0;
};

// Returns where a micro-batch of a value begins. Of a value that a step has once, every micro-batch is the same.
Bytes address(const Plan& plan, ValueId value, MicroBatch micro_batch);

}  // namespace weft
