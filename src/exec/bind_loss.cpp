// Binds the loss, over a whole vocabulary or over one whose columns are spread over ranks.
#include <cmath>

#include "base/error.hpp"
#include "exec/bind_compute.hpp"
#include "exec/operands.hpp"

namespace weft {

std::span<const std::int64_t> ComputeBinder::targets_of(const Operation& op, MicroBatch micro_batch,
                                                        ElementRange rows) const {
  const MicroBatch batch = view_.micro_batch_of_step(op, micro_batch);
  const std::span<const std::int64_t> all = held_by(op, training_.targets[batch.index()]);
  return rows.size() == 0 ? all : all.subspan(rows.begin, rows.size());
}

BoundOperation ComputeBinder::bind_loss_part(const Operation& op, MicroBatch micro_batch) const {
  const Operands of(view_, op, micro_batch);
  const MicroBatch batch = view_.micro_batch_of_step(op, micro_batch);
  return
      [this, batch, targets = targets_of(op, micro_batch, {}), logits = of.read(Operand::input),
       part = loss_parts(op, of.flat(write_of(op, Operand::loss_parts))).front()](Kernels& kernels, std::int64_t step) {
        load_batch(step, batch);
        kernels.cross_entropy_part(logits, targets, vocabulary_, part);
      };
}

// A value holds, one after the other, the three numbers of every token of every vocabulary part.
std::vector<LossPart> ComputeBinder::loss_parts(const Operation& op, const Vector& value) const {
  const Layout& layout = view_.plan().layout;
  const std::int64_t tokens = layout.has_slices() ? layout.slice(op.turn).size() / layout.cp : layout.tokens();
  std::vector<LossPart> parts;
  for (std::int64_t at = 0; at < value.size; at += 3 * tokens) {
    const ElementPointer part = value.data + at;
    parts.push_back({{part, tokens}, {part + tokens, tokens}, {part + 2 * tokens, tokens}});
  }
  return parts;
}

BoundOperation ComputeBinder::bind_loss(const Operation& op, MicroBatch micro_batch, ElementRange rows) const {
  const Operands of(view_, op, micro_batch, rows);
  std::vector<LossPart> parts;
  const ValueId gathered = find_read(op, Operand::loss_parts);
  if (gathered.valid()) parts = loss_parts(op, of.flat(gathered));
  const bool counts = view_.coordinate(Axis::tp) == 0;  // its tensor-parallel peers have the same loss
  const MicroBatch batch = view_.micro_batch_of_step(op, micro_batch);
  double& loss = training_.losses.emplace_back();
  const auto compute = [this, batch, parts, targets = targets_of(op, micro_batch, rows),
                        logits = of.read(Operand::input), p = of.write(Operand::output),
                        &loss](Kernels& kernels, std::int64_t step) {
    load_batch(step, batch);
    if (parts.empty()) return kernels.cross_entropy(logits, targets, vocabulary_.count, p, loss);
    kernels.cross_entropy_of_parts(logits, vocabulary_, parts, p, loss);
  };
  const auto read = [this, micro_batch, counts, &loss](Kernels& kernels, std::int64_t step) {
    if (counts) (is_validation(step) ? training_.validation_loss_sum : training_.loss_sums[step]) += loss;
    if (!std::isfinite(loss))
      throw RunFailed(fmt::format("the loss is not finite{}", first_not_finite(kernels, micro_batch)));
  };
  return {compute, read};
}

BoundOperation ComputeBinder::bind_loss_grad(const Operation& op, MicroBatch micro_batch, ElementRange rows) const {
  const Operands of(view_, op, micro_batch, rows);
  const Layout& layout = view_.plan().layout;
  // Gradients are summed over micro-batches and ranks, so each carries its share of the mean.
  const double scale = 1 / static_cast<double>(layout.global_batch * layout.seq);
  return [targets = targets_of(op, micro_batch, rows), scale, first = vocabulary_.first, p = of.read(Operand::output),
          dx = of.write(Operand::input_grad)](Kernels& kernels, std::int64_t) {
    kernels.cross_entropy_input_grad(p, targets, first, scale, dx);
  };
}

// Names the first result of forward, among those that backward still needs, that holds a NaN or an infinity.
std::string ComputeBinder::first_not_finite(Kernels& kernels, MicroBatch micro_batch) const {
  const StepGraph& graph = view_.original();
  std::vector<bool> kept(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    if (op.phase != Phase::input_grad && op.phase != Phase::weight_grad) continue;
    for (const Read& read : op.reads) kept[read.value.index()] = true;
  }
  for (const Operation& op : graph.operations) {
    if (op.phase != Phase::forward || op.is_transfer() || op.rank_class != view_.rank_class()) continue;
    for (const Write& write : op.writes) {
      if (graph.value(write.value).bytes_per_element == 1) continue;  // what dropout kept
      if (!kept[write.value.index()]) continue;
      bool finite = true;
      kernels.all_finite(Operands(view_, op, micro_batch).flat(write.value), finite);
      kernels.synchronize();
      if (!finite) return fmt::format("; the first such result is that of {}", describe(op));
    }
  }
  return "";
}

}  // namespace weft
