#include "plan/memory/lifetimes.hpp"

#include <algorithm>

#include "plan/late.hpp"
#include "plan/memory/beside_chain.hpp"

namespace weft {
namespace {

// When an operation uses a value, in half steps. `end` is kNever where nothing of the block waits for it.
struct Use {
  std::int32_t begin = 0, end = 0;
};

Use use_by(const BesideChain& beside, OpId id) {
  const std::int32_t position = beside.spot(id).position;
  if (!beside.runs_beside(id)) return {2 * position, 2 * position + 1};
  const std::int32_t ended = beside.ended_at(id);
  return {2 * beside.starts_after(id) + 1, ended == BesideChain::kNever ? ended : 2 * ended};
}

bool leaves_nothing_in_block(const Plan& plan, OpId id) {
  const std::vector<Write>& writes = plan.graph.op(id).writes;
  return std::none_of(writes.begin(), writes.end(),
                      [&](const Write& write) { return plan.graph.value(write.value).per_micro_batch; });
}

// All uses are in one block. Finds whether they lie in one execution of it, and between two of its pauses.
void bound(const Plan& plan, const BesideChain& beside, const std::vector<std::int32_t>& pauses, Lifetime& life) {
  const std::int32_t length = beside.length_of_block(life.writers.front());
  life.begin = BesideChain::kNever;
  life.end = 0;
  for (const OpId writer : life.writers) life.begin = std::min(life.begin, use_by(beside, writer).begin);
  for (const auto* users : {&life.writers, &life.readers}) {
    for (const OpId user : *users) life.end = std::max(life.end, use_by(beside, user).end);
  }
  if (life.begin < 0 || life.end == BesideChain::kNever) return;
  life.first = life.begin / 2;
  life.last = (life.end + 1) / 2 - 1;
  // Another micro-batch uses the same scratch in a pause, which ends when the operation behind it begins.
  const bool is_interrupted = std::any_of(pauses.begin(), pauses.end(), [&](std::int32_t pause) {
    return life.begin < 2 * pause && 2 * pause <= life.end;
  });
  if (is_interrupted) return;
  life.leaves_block = life.end >= 2 * length;  // waited for at the earliest where the block begins again
  // What only explicit waits end is a buffer that executions of the block use in turns, whichever of them it ends in.
  const auto in_chain = [&](OpId id) { return !beside.runs_beside(id); };
  const auto leaves_nothing = [&](OpId id) { return beside.runs_beside(id) && leaves_nothing_in_block(plan, id); };
  const bool by_waits = life.leaves_block || std::any_of(life.readers.begin(), life.readers.end(), leaves_nothing);
  life.pooled =
      by_waits && life.last < life.first + length && std::all_of(life.writers.begin(), life.writers.end(), in_chain);
  life.leaves_block = life.leaves_block || life.pooled;
}

}  // namespace

std::vector<Lifetime> find_lifetimes(const Plan& plan) {
  std::vector<Lifetime> lifetimes(plan.graph.values.size());
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const OpId id = make_id<OpId>(i);
    for (const Write& write : plan.graph.op(id).writes) lifetimes[write.value.index()].writers.push_back(id);
    for (const Read& read : plan.graph.op(id).reads) lifetimes[read.value.index()].readers.push_back(id);
  }
  const BesideChain beside(plan);
  IdVector<ClassId, IdVector<BlockId, std::vector<std::int32_t>>> pauses;
  for (const ClassPlan& c : plan.classes) pauses.push_back(pauses_of(c));
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    Lifetime& life = lifetimes[i];
    if (life.writers.empty()) continue;
    life.block = beside.spot(life.writers.front()).block;
    life.leaves_block = true;
    const auto here = [&](OpId id) { return beside.spot(id).block == life.block; };
    life.carried = plan.graph.values[i].per_micro_batch &&
                   std::any_of(life.readers.begin(), life.readers.end(),
                               [&](OpId reader) { return is_carried(plan, life.writers.front(), reader); });
    const bool stays = plan.graph.values[i].per_micro_batch && life.block.valid() && !life.carried &&
                       std::all_of(life.writers.begin(), life.writers.end(), here) &&
                       std::all_of(life.readers.begin(), life.readers.end(), here);
    if (stays) bound(plan, beside, pauses[plan.graph.values[i].rank_class][life.block], life);
  }
  return lifetimes;
}

namespace {

// Factors of low rank are summed where they lie; what is exchanged or gathered arrives beside what is sent.
bool carries_encoded(const Operation& op) {
  if (op.role == Role::param_gather) return op.communication->format.type == ElementType::u8;
  return (op.role == Role::grad_exchange || op.role == Role::grad_gather) &&
         op.communication->collective != Collective::all_reduce;
}

// When a gradient has been encoded nobody needs it any more, so the decoded sum takes its memory. Factors of low rank
// read it until they have made the sum.
void store_sums_in_gradients(const Plan& plan, std::vector<ValueId>& storage) {
  const std::vector<std::vector<OpId>> writers = writers_of(plan.graph);
  const auto writer_of = [&](ValueId value) {
    return value.valid() && !writers[value.index()].empty() ? &plan.graph.op(writers[value.index()].front()) : nullptr;
  };
  for (const Operation& op : plan.graph.operations) {
    if (op.per_micro_batch || (op.role != Role::grad_merge && op.role != Role::grad_decode)) continue;
    if (op.key.kind == OpKind::low_rank) {
      storage[write_of(op, Operand::gradient).index()] = read_of(op, Operand::gradient);
      continue;
    }
    const Operation* const transfer = writer_of(find_read(op, Operand::encoded));
    const Operation* const encode = transfer == nullptr ? nullptr : writer_of(find_read(*transfer, Operand::payload));
    if (encode == nullptr || encode->role != Role::grad_encode) continue;  // the verifier says why that is wrong
    storage[write_of(op, Operand::gradient).index()] = read_of(*encode, Operand::gradient);
  }
}

}  // namespace

std::vector<ValueId> find_storage(const Plan& plan) {
  const bool gathers_sums = plan.layout.zero == 0 && !plan.layout.reduces_once_a_step();
  std::vector<ValueId> storage;
  for (std::size_t i = 0; i < plan.graph.values.size(); ++i) storage.push_back(make_id<ValueId>(i));
  for (const Operation& op : plan.graph.operations) {
    if (op.per_micro_batch || carries_encoded(op)) continue;
    for (const auto& [in, out] : carried_by(op)) {
      if (plan.graph.value(in).kind == ValueKind::scalar) continue;
      // A reduction ends where it began; a gather's own shard already lies inside the whole.
      if (op.role == Role::param_gather || (gathers_sums && op.role == Role::grad_reduce)) {
        storage[in.index()] = out;
      } else {
        storage[out.index()] = in;
      }
    }
  }
  store_sums_in_gradients(plan, storage);
  for (ValueId& value : storage) {
    while (storage[value.index()] != value) value = storage[value.index()];
  }
  return storage;
}

}  // namespace weft
