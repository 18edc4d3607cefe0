#include "planner/schedule/overlap_zero.hpp"

#include <algorithm>
#include <map>

#include "graph/op_lists.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/overlap_exchanges.hpp"
#include "planner/schedule/sharded_units.hpp"

namespace weft {
namespace {

// One block of one class.
class BlockOverlap {
 public:
  // `position`: by operation; those of the block are set.
  BlockOverlap(Plan& plan, IssueBlock& block, const OpLists& writers, const OpLists& readers,
               std::vector<std::size_t>& position)
      : plan_(plan), block_(block), writers_(writers), readers_(readers), position_(position) {
    for (std::size_t i = 0; i < block.operations.size(); ++i) position_[block.operations[i].index()] = i;
  }

  void prefetch(std::size_t depth, bool ahead_of_pass) {
    const std::vector<ShardedUnit> units = this->units().gathers;
    if (units.empty()) return;
    for (const OpId gather : units[0].transfers) plan_.issues[gather.index()].blocking = true;
    // Those that had the memory of later ones: the last reader of each, in order. A head that forward left whole is the
    // first of them.
    std::vector<OpId> last_readers;
    const OpId of_kept = last_reader_of_kept(units);
    if (of_kept.valid()) last_readers.push_back(of_kept);
    for (const ShardedUnit& unit : units) last_readers.push_back(last_reader(unit));
    const std::size_t first = of_kept.valid() ? 0 : 1;  // of those that are not waited for on the spot
    const OpId begun = of_kept.valid() ? first_computation() : units[0].transfers.back();
    std::vector<OpId> issued_first;
    std::map<std::size_t, std::vector<OpId>> issued_after;  // position
    for (std::size_t u = first; u < units.size(); ++u) {
      const std::size_t held_before = u + 1 - first;
      const bool waits = held_before > depth || !ahead_of_pass;
      const OpId until = held_before <= depth ? begun : last_readers[held_before - 1 - depth];
      for (const OpId gather : units[u].transfers) {
        plan_.issues[gather.index()].blocking = false;
        if (waits) plan_.waits.push_back({gather, until, 0});
        if (!waits && of_kept.valid()) {
          issued_first.push_back(gather);
        } else {
          issued_after[position_[until.index()]].push_back(gather);
        }
      }
    }
    move(issued_first, issued_after);
  }

  void reduce_behind(std::size_t buffers) {
    const std::vector<ShardedUnit> units = this->units().reductions;
    // All micro-batches of a reduction group add to the gradients of all units before the first of them is reduced.
    if (plan_.layout.reduction_group() > 1) buffers = std::max<std::size_t>(units.size(), 1);
    for (std::size_t u = 0; u < units.size(); ++u) {
      // Units take the buffers in turns; the last one of an execution to have had this buffer.
      std::size_t last = units.size() - 1;
      while (last % buffers != u % buffers) --last;
      const bool earlier = u >= buffers;
      const OpId writer = first_writer(units[u]);
      for (const OpId reduction : units[earlier ? u - buffers : last].transfers) {
        plan_.waits.push_back({writer, reduction, earlier ? 0 : 1});
      }
      for (const OpId reduction : units[u].transfers) plan_.issues[reduction.index()].blocking = false;
    }
  }

 private:
  ShardedUnits units() const { return find_sharded_units(plan_.graph, block_, writers_, readers_); }

  OpId first_computation() const {
    return *std::ranges::find_if(block_.operations, [&](OpId id) { return !plan_.graph.op(id).is_transfer(); });
  }

  // Returns the last operation that reads what another block has gathered; no valid id where none does, or where a
  // woven order uses one of the units before it.
  OpId last_reader_of_kept(const std::vector<ShardedUnit>& units) const {
    OpId last;
    const auto is_kept = [&](const Read& read) {
      const auto made_by = writers_[read.value.index()];
      return std::ranges::any_of(made_by, [&](OpId writer) {
        const Operation& op = plan_.graph.op(writer);
        return ((is_sharded_traffic(op) && op.role == Role::param_gather) || op.role == Role::param_decode) &&
               std::ranges::find(block_.operations, writer) == block_.operations.end();
      });
    };
    for (const OpId id : block_.operations) {
      if (std::ranges::any_of(plan_.graph.op(id).reads, is_kept)) last = id;
    }
    const auto comes_before = [&](OpId user) { return position_[user.index()] < position_[last.index()]; };
    const auto is_used_before = [&](const ShardedUnit& unit) { return std::ranges::any_of(unit.users, comes_before); };
    if (last.valid() && std::ranges::any_of(units, is_used_before)) return {};
    return last;
  }

  OpId last_reader(const ShardedUnit& unit) const {
    OpId last = unit.transfers.back();
    for (const OpId gather : unit.transfers) {
      for (const Write& write : plan_.graph.op(gather).writes) {
        for (const OpId reader : readers_[write.value.index()]) {
          if (position_[reader.index()] > position_[last.index()]) last = reader;
          if (plan_.graph.op(reader).role != Role::param_decode) continue;
          // Who reads what it decodes uses the unit.
          for (const OpId user : readers_[write_of(plan_.graph.op(reader), Operand::weight).index()]) {
            if (position_[user.index()] > position_[last.index()]) last = user;
          }
        }
      }
    }
    return last;
  }

  OpId first_writer(const ShardedUnit& unit) const {
    OpId first = unit.transfers.front();
    for (const OpId reduction : unit.transfers) {
      for (const Read& read : plan_.graph.op(reduction).reads) {
        for (const OpId writer : writers_[read.value.index()]) {
          if (position_[writer.index()] < position_[first.index()]) first = writer;
        }
      }
    }
    return first;
  }

  // Edges hold a gather back wherever it is issued; that it is issued when it may start is for whoever issues in order.
  void move(const std::vector<OpId>& issued_first, const std::map<std::size_t, std::vector<OpId>>& issued_after) {
    if (issued_first.empty() && issued_after.empty()) return;
    std::vector<OpId> operations = issued_first;
    for (std::size_t i = 0; i < block_.operations.size(); ++i) {
      const OpId id = block_.operations[i];
      const bool moves = plan_.graph.op(id).role == Role::param_gather && !plan_.issues[id.index()].blocking;
      if (!moves) operations.push_back(id);
      const auto found = issued_after.find(i);
      if (found != issued_after.end()) operations.insert(operations.end(), found->second.begin(), found->second.end());
    }
    block_.operations = std::move(operations);
  }

  Plan& plan_;
  IssueBlock& block_;
  const OpLists& writers_;
  const OpLists& readers_;
  std::vector<std::size_t>& position_;
};

// Gathers that repeat leave the queue of their group; those in legs have queues of their own anyway.
void separate_gathers(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.role != Role::param_gather || !op.per_micro_batch || op.rule != Substitution::none) continue;
    ClassPlan& c = plan.classes[op.rank_class];
    QueueId& queue = plan.issues[i].queue;
    queue = communication_queue(c, c.queues[queue].name + " gather");
  }
}

}  // namespace

void overlap_sharded_traffic(Plan& plan, const ShardedOverlap& overlap) {
  separate_gathers(plan);
  if (!overlap.gathers && !overlap.reductions) return;
  if (overlap.reductions) overlap_exchanges(plan);
  const OpLists writers = writers_by_value(plan.graph), readers = readers_by_value(plan.graph);
  std::vector<std::size_t> position(plan.graph.operations.size(), 0);
  for (ClassPlan& c : plan.classes) {
    for (IssueBlock& block : c.blocks) {
      if (block.operations.empty() || !plan.graph.op(block.operations.front()).per_micro_batch) continue;
      if (overlap.gathers) {
        BlockOverlap(plan, block, writers, readers, position)
            .prefetch(static_cast<std::size_t>(overlap.prefetch), overlap.ahead_of_pass && plan.layout.pp == 1);
      }
      if (overlap.reductions)
        BlockOverlap(plan, block, writers, readers, position)
            .reduce_behind(static_cast<std::size_t>(overlap.gradient_buffers));
    }
  }
  for (std::size_t i = 0; i < plan.issues.size() && overlap.gathers; ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.role == Role::param_gather && !op.per_micro_batch) plan.issues[i].blocking = false;
  }
}

}  // namespace weft
