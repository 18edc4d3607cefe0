#include "exec/expert_row_ranges.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "graph/operation_part.hpp"

namespace weft {
namespace {

// Returns whether tokens, or their gradients, set out for experts here; on one rank alone, are put into their slots.
bool is_way_out(const Operation& op, bool exchanges) {
  if (op.phase == Phase::input_grad) return op.role == (exchanges ? Role::expert_combine : Role::combine);
  if (op.phase == Phase::weight_grad) return false;
  return op.role == (exchanges ? Role::expert_dispatch : Role::dispatch);
}

bool begins_in(const Origin& part, const Origin& within) {
  return within.begin * part.of <= part.begin * within.of && part.begin * within.of < within.end * part.of;
}

// Finds by expert which of its slots rows of the routing use.
void find_row_ranges(const Matrix& routing, std::int64_t capacity, std::span<ElementRange> by_expert) {
  std::ranges::fill(by_expert, ElementRange{});
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    const std::span<const float> slots = floats_of(routing.row(r)).first(routing.columns / 2);
    for (const float kept : slots) {
      if (kept < 0) continue;
      const auto slot = static_cast<std::int64_t>(kept);
      ElementRange& range = by_expert[slot / capacity];
      range = joined(range, {slot % capacity, slot % capacity + 1});
    }
  }
}

}  // namespace

ElementRange joined(ElementRange a, ElementRange b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

ExpertRowRanges::ExpertRowRanges(const Plan& plan, ClassId rank_class) {
  if (!plan.model.experts) return;
  tokens_ = token_rows(plan.layout);
  tokens_.routed = routed_slots(plan.model, plan.layout);
  ranks_ = plan.layout.ep;
  for (const Operation& op : plan.graph.operations) {
    if (op.rank_class != rank_class || op.origins.size() != 1 || op.leg > 0 || !is_way_out(op, ranks_ > 1)) continue;
    const Origin& part = op.origins.front();
    const bool by_tokens = is_whole(part) ? tokens_.routed.uneven : part.axis == kTokenAxis;
    if (by_tokens) add_tables(op, plan);
  }
}

// Until the first exchange they hold what balanced loads would fill: what is measured before a run goes by that.
void ExpertRowRanges::add_tables(const Operation& way_out, const Plan& plan) {
  const Layout& layout = plan.layout;
  if (layout.experts_gather_tokens()) {
    fail("'{}': weft run sends only the rows that are there where experts do not gather tokens of --etp {} ranks",
         describe(way_out), layout.etp);
  }
  const Origin& part = way_out.origins.front();
  const std::int64_t choices = tokens_.rows_of(way_out.turn) * tokens_.routed.top_k;
  const std::int64_t balanced = std::min(capacity(way_out), (choices + experts() - 1) / experts());
  const ElementRange rows{balanced * part.begin / part.of, balanced * part.end / part.of};
  for (const MicroBatch m : IdRange<MicroBatch>(layout.micro_batches())) {
    ExpertTable& table = tables_[key_of(way_out, m)].emplace_back();
    table.part = part;
    table.outgoing.assign(experts(), rows);
    table.incoming = table.outgoing;
    table.passed_on.fill(table.outgoing);
  }
}

ExpertRowRanges::Key ExpertRowRanges::key_of(const Operation& op, MicroBatch micro_batch) {
  const bool back = op.phase == Phase::input_grad || op.phase == Phase::weight_grad;
  return {op.layer, op.turn, micro_batch,
          back                           ? Pass::back
          : op.phase == Phase::recompute ? Pass::again
                                         : Pass::forward};
}

std::vector<ExpertTable*> ExpertRowRanges::of(const Operation& op, MicroBatch micro_batch, const Origin& part) {
  std::vector<ExpertTable*> found;
  const auto tables = tables_.find(key_of(op, micro_batch));
  if (tables == tables_.end()) return found;
  for (ExpertTable& table : tables->second) {
    if (begins_in(table.part, part)) found.push_back(&table);
  }
  return found;
}

bool ExpertRowRanges::has_tables(const Operation& op, MicroBatch micro_batch) const {
  return tables_.contains(key_of(op, micro_batch));
}

void ExpertRowRanges::fill(const Operation& op, MicroBatch micro_batch, const Matrix& routing, ElementRange rows) {
  const auto tables = tables_.find(key_of(op, micro_batch));
  if (tables == tables_.end()) return;
  for (ExpertTable& table : tables->second) {
    const ElementRange own = part_range(routing.rows, table.part);
    if (overlap(own, rows).empty()) continue;
    find_row_ranges(routing.row_slice(own.begin, own.end), capacity(op), table.outgoing);
    if (ranks_ == 1) table.incoming = table.outgoing;
  }
}

}  // namespace weft
