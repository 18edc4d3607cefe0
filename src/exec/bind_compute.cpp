#include "exec/bind_compute.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "exec/bind_attention.hpp"
#include "exec/bind_compression.hpp"
#include "exec/bind_experts.hpp"
#include "exec/bind_kfac.hpp"
#include "exec/bind_linear.hpp"
#include "exec/bind_low_rank.hpp"
#include "exec/bind_node_compression.hpp"
#include "exec/bind_qk_norm.hpp"
#include "exec/bind_slices.hpp"
#include "exec/bind_task.hpp"
#include "exec/bind_zero_plus_plus.hpp"
#include "exec/operands.hpp"
#include "exec/row_ranges.hpp"
#include "graph/kfac.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

constexpr std::int64_t kNothingLoaded = INT64_MIN;

// Returns the value that has a row for every token that an operation works on.
ValueId rows_written_by(const Operation& op) {
  if (op.phase != Phase::input_grad) return write_of(op, Operand::output);
  return write_of(op, op.role == Role::attention ? Operand::queries_grad : Operand::input_grad);
}

[[noreturn]] void no_kernel(const Operation& op) {
  fail("weft run has no kernel yet for '{}'", describe(op));
}

}  // namespace

ComputeBinder::ComputeBinder(const RankView& view, const ParameterStates& parameters, const TrainSettings& settings,
                             const Batches& batches, RankTraining& training, const Batches* validation)
    : view_(view),
      parameters_(parameters),
      settings_(settings),
      batches_(batches),
      validation_(validation),
      training_(training) {
  const std::int64_t rows = local_vocab(view.plan().model, view.plan().layout);
  const std::int64_t first = view.coordinate(Axis::tp) * rows;
  vocabulary_ = {first, std::clamp<std::int64_t>(view.plan().model.vocab - first, 0, rows)};
  const Layout& layout = view.plan().layout;
  const std::size_t tokens = layout.tokens();
  const std::size_t micro_batches = layout.micro_batches();
  training_.tokens.assign(micro_batches, std::vector<std::int64_t>(tokens));
  training_.targets = training_.tokens;
  training_.loaded.assign(micro_batches, kNothingLoaded);
  training_.gradient_is_finite.assign(parameters.all().size(), true);
  training_.curvature.known.assign(parameters.factors().size(), false);
  batch_tokens_.resize(layout.micro_batch * layout.seq);
  batch_targets_ = batch_tokens_;
  for (const ElementRange& part : view.all_positions()) {
    for (std::int64_t at = part.begin; at < part.end; ++at) positions_.push_back(at);
  }
  training_.loss_sums.assign(settings.steps, 0.0);
}

BoundOperation ComputeBinder::bind(OpId id, MicroBatch micro_batch) const {
  const Operation& op = view_.plan().graph.op(id);
  std::vector<BoundOperation> pieces;
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    if (!is_whole(origin)) {
      const std::vector<BoundOperation> ranges = bind_part(original, origin, micro_batch);
      pieces.insert(pieces.end(), ranges.begin(), ranges.end());
      continue;
    }
    const ValueId sum = find_write(original, original.role == Role::kv_reduce    ? Operand::keys_values_grad
                                             : original.role == Role::grad_merge ? Operand::gradient
                                             : original.role == Role::curvature  ? Operand::curvature
                                                                                 : Operand::weight_grad);
    const bool first = sum.valid() && view_.writes_first(sum, id, micro_batch);
    pieces.push_back(bind_whole(original, micro_batch, first));
  }
  return BoundOperation::join(std::move(pieces));
}

std::vector<BoundOperation> ComputeBinder::bind_part(const Operation& op, const Origin& part,
                                                     MicroBatch micro_batch) const {
  if (is_of_routed_experts(op)) return {bind_experts(view_, op, micro_batch, part)};
  const Layout& layout = view_.plan().layout;
  const std::int64_t own = view_.coordinate(Axis::tp);
  std::vector<BoundOperation> ranges;
  if (is_own_piece(part)) {
    const Operation reads_shard = reading_own_shard(view_.original(), op);
    for (const OwnRows& rows : own_row_ranges(layout, own)) {
      ranges.push_back(op.phase == Phase::input_grad
                           ? bind_linear_input_grad(view_, reads_shard, micro_batch, rows.in_all, rows.in_shard)
                           : bind_linear(view_, reads_shard, micro_batch, rows.in_all, rows.in_shard));
    }
    return ranges;
  }
  const Value& value = view_.original().value(rows_written_by(op));
  for (const ElementRange& rows : row_ranges(layout, value.shape.front(), part, own)) {
    ranges.push_back(op.phase == Phase::input_grad ? bind_input_grad(op, micro_batch, rows)
                                                   : bind_forward(op, micro_batch, rows));
  }
  return ranges;
}

BoundOperation ComputeBinder::bind_whole(const Operation& op, MicroBatch micro_batch, bool first_write) const {
  if (is_of_routed_experts(op)) return bind_experts(view_, op, micro_batch);
  const Into into = first_write ? Into::overwrite : Into::add;
  if (op.role == Role::kv_gather) return bind_kv_join(view_, op, micro_batch);
  if (is_of_gathered_weights(op)) return bind_gathered_weights(view_, parameters_, op, micro_batch);
  if (op.role == Role::grad_encode && op.per_micro_batch) {
    return bind_hop_encode(view_, parameters_, settings_.seed, op, micro_batch);
  }
  if (op.role == Role::grad_merge && op.per_micro_batch) {
    return bind_hop_merge(view_, parameters_, op, micro_batch, into);
  }
  if (op.role == Role::kv_reduce) return bind_kv_grad_sum(view_, op, micro_batch, into);
  if (op.role == Role::task) return bind_task(view_, parameters_, op);
  if (is_of_kfac(op)) return bind_kfac(view_, parameters_, settings_.kfac, training_.curvature, op, micro_batch, into);
  switch (op.phase) {
    case Phase::forward:
    case Phase::recompute:
      return bind_forward(op, micro_batch, {});
    case Phase::input_grad:
      return bind_input_grad(op, micro_batch, {});
    case Phase::weight_grad:
      return bind_weight_grad(op, micro_batch, into);
    case Phase::optimizer:
      return bind_once(op);
  }
  no_kernel(op);
}

BoundOperation ComputeBinder::bind_forward(const Operation& op, MicroBatch micro_batch, ElementRange rows) const {
  const Operands of(view_, op, micro_batch, rows);
  switch (op.role) {
    case Role::embedding:
      return bind_embedding(op, micro_batch);
    case Role::attention_norm:
    case Role::query_norm:
    case Role::kv_norm:
    case Role::ffn_norm:
    case Role::final_norm:
      return [x = of.read(Operand::input), w = of.norm(read_of(op, Operand::weight)), y = of.write(Operand::output)](
                 Kernels& kernels, std::int64_t) { kernels.norm(x, w, y); };
    case Role::qkv:
    case Role::kv:
    case Role::query_down:
    case Role::query_up:
    case Role::kv_down:
    case Role::kv_up:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::router:
    case Role::shared_in:
    case Role::shared_out:
    case Role::head:
      return bind_linear(view_, op, micro_batch, rows);
    case Role::qk_norm:
      return bind_qk_norm(view_, op, micro_batch);
    case Role::attention:
      return bind_attention(view_, settings_.seed, op, micro_batch, rows);
    case Role::embedding_dropout:
      return bind_dropout(op, micro_batch, rows);
    case Role::attention_residual:
    case Role::ffn_residual:
      if (find_write(op, Operand::kept_elements).valid()) return bind_dropout(op, micro_batch, rows);
      [[fallthrough]];
    case Role::shared_sum:
      return [a = of.read(Operand::input), b = of.read(Operand::addend), y = of.write(Operand::output)](
                 Kernels& kernels, std::int64_t) { kernels.add(a, b, y); };
    case Role::ffn_act:
    case Role::shared_act:
      if (view_.plan().model.activation == Activation::swiglu) {
        return [x = of.read(Operand::input), y = of.write(Operand::output)](Kernels& kernels, std::int64_t) {
          kernels.swiglu(x, y);
        };
      }
      return [x = of.read(Operand::input), y = of.write(Operand::output)](Kernels& kernels, std::int64_t) {
        kernels.gelu(x, y);
      };
    case Role::loss:
      return op.part == 1 ? bind_loss_part(op, micro_batch) : bind_loss(op, micro_batch, rows);
    default:
      no_kernel(op);
  }
}

BoundOperation ComputeBinder::bind_input_grad(const Operation& op, MicroBatch micro_batch, ElementRange rows) const {
  const Operands of(view_, op, micro_batch, rows);
  switch (op.role) {
    case Role::attention_norm:
    case Role::query_norm:
    case Role::kv_norm:
    case Role::ffn_norm:
    case Role::final_norm:
      return [dy = of.read(Operand::output_grad), x = of.read(Operand::input),
              residual = of.find_read(Operand::addend_grad), w = of.norm(read_of(op, Operand::weight)),
              dx = of.write(Operand::input_grad)](Kernels& kernels, std::int64_t) {
        kernels.norm_input_grad(dy, x, w, residual, dx);
      };
    case Role::qkv:
    case Role::kv:
    case Role::query_down:
    case Role::query_up:
    case Role::kv_down:
    case Role::kv_up:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::router:
    case Role::shared_in:
    case Role::shared_out:
    case Role::head:
      return bind_linear_input_grad(view_, op, micro_batch, rows);
    case Role::qk_norm:
      return bind_qk_norm_input_grad(view_, op, micro_batch);
    case Role::attention:
      return bind_attention_grad(view_, settings_.seed, op, micro_batch, rows);
    case Role::embedding_dropout:
    case Role::attention_residual:
    case Role::ffn_residual:
      return [dy = of.read(Operand::output_grad), rate = dropout_of(op).rate,
              kept = of.kept(read_of(op, Operand::kept_elements)), dx = of.write(Operand::input_grad)](
                 Kernels& kernels, std::int64_t) { kernels.dropout_input_grad(dy, rate, kept, dx); };
    case Role::shared_sum:
      return [a = of.read(Operand::output_grad), b = of.read(Operand::addend_grad), y = of.write(Operand::input_grad)](
                 Kernels& kernels, std::int64_t) { kernels.add(a, b, y); };
    case Role::ffn_act:
    case Role::shared_act:
      if (view_.plan().model.activation == Activation::swiglu) {
        return [dy = of.read(Operand::output_grad), x = of.read(Operand::input), dx = of.write(Operand::input_grad)](
                   Kernels& kernels, std::int64_t) { kernels.swiglu_input_grad(dy, x, dx); };
      }
      return [dy = of.read(Operand::output_grad), x = of.read(Operand::input), dx = of.write(Operand::input_grad)](
                 Kernels& kernels, std::int64_t) { kernels.gelu_input_grad(dy, x, dx); };
    case Role::loss:
      return bind_loss_grad(op, micro_batch, rows);
    default:
      no_kernel(op);
  }
}

BoundOperation ComputeBinder::bind_weight_grad(const Operation& op, MicroBatch micro_batch, Into into) const {
  const Operands of(view_, op, micro_batch);
  const ValueId gradient = write_of(op, Operand::weight_grad);
  switch (op.role) {
    case Role::attention_norm:
    case Role::query_norm:
    case Role::kv_norm:
    case Role::ffn_norm:
    case Role::final_norm: {
      // The gradient has the layout of the weights. dW needs no weights themselves, but whether there is a bias.
      const NormWeights d = of.norm(gradient);
      return [x = of.read(Operand::input), dy = of.read(Operand::output_grad), d, into](
                 Kernels& kernels, std::int64_t) { kernels.norm_weight_grad(dy, x, d, d.gain, d.bias, into); };
    }
    case Role::qkv:
    case Role::kv:
    case Role::query_down:
    case Role::query_up:
    case Role::kv_down:
    case Role::kv_up:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::router:
    case Role::shared_in:
    case Role::shared_out:
    case Role::head:
      return bind_linear_weight_grad(view_, op, micro_batch, into);
    case Role::expert_in:
    case Role::expert_out:
      return bind_experts_weight_grad(view_, op, micro_batch, into);
    case Role::qk_norm:
      return bind_qk_norm_weight_grad(view_, op, micro_batch, into);
    case Role::embedding:
      return [tokens = held_by(op, training_.tokens[view_.micro_batch_of_step(op, micro_batch).index()]),
              dy = of.read(Operand::output_grad), dw = of.weight(gradient), first = vocabulary_.first,
              into](Kernels& kernels, std::int64_t) { kernels.embedding_weight_grad(tokens, dy, dw, first, into); };
    case Role::positions:
      return [dy = of.read(Operand::output_grad), d = learned_positions(op, of.weight(gradient)), into](
                 Kernels& kernels, std::int64_t) { kernels.positions_weight_grad(dy, d, into); };
    default:
      no_kernel(op);
  }
}

ComputeBinder::DropoutPlace ComputeBinder::dropout_of(const Operation& op) const {
  const DropoutRates& rates = view_.plan().model.dropout;
  if (op.role == Role::embedding_dropout) return {DropoutSite::embedding, rates.embedding};
  return {op.role == Role::ffn_residual ? DropoutSite::ffn_residual : DropoutSite::attention_residual, rates.hidden};
}

// Writes what it kept beside the result, and adds the stream where it reads one.
BoundOperation ComputeBinder::bind_dropout(const Operation& op, MicroBatch micro_batch, ElementRange rows) const {
  const Operands of(view_, op, micro_batch, rows);
  return [x = of.read(Operand::input), stream = of.find_read(Operand::addend), y = of.write(Operand::output),
          kept = of.kept(write_of(op, Operand::kept_elements)), place = dropout_of(op),
          numbers = token_numbers(view_, op, micro_batch, rows), layer = op.layer,
          seed = settings_.seed](Kernels& kernels, std::int64_t step) {
    const double rate = is_validation(step) ? 0 : place.rate;
    kernels.dropout(x, {rate, dropout_key(seed, step, layer, place.site), numbers}, stream, kept, y);
  };
}

// Each rank has the tokens of its vocabulary's part; the first of them also adds the positions.
BoundOperation ComputeBinder::bind_embedding(const Operation& op, MicroBatch micro_batch) const {
  const Operands of(view_, op, micro_batch);
  LearnedPositions positions;
  const ValueId positions_table = find_read(op, Operand::positions);
  if (positions_table.valid() && view_.coordinate(Axis::tp) == 0) {
    Operation table = op;
    table.role = Role::positions;
    positions = learned_positions(op, Operands(view_, table, micro_batch).weight(positions_table));
  }
  const MicroBatch batch = view_.micro_batch_of_step(op, micro_batch);
  return [this, batch, tokens = held_by(op, training_.tokens[batch.index()]), positions,
          table = of.weight(read_of(op, Operand::weight)),
          y = of.write(Operand::output)](Kernels& kernels, std::int64_t step) {
    load_batch(step, batch);
    kernels.embedding(tokens, table, vocabulary_.first, positions, y);
  };
}

// A slice has its share of what the rank holds of a micro-batch, which is then one sequence.
std::span<const std::int64_t> ComputeBinder::held_by(const Operation& op, std::span<const std::int64_t> of_rank) const {
  if (!view_.plan().layout.has_slices()) return of_rank;
  const Layout& layout = view_.plan().layout;
  const ElementRange slice = layout.slice(op.turn);
  return of_rank.subspan(static_cast<std::size_t>(slice.begin / layout.cp),
                         static_cast<std::size_t>(slice.size() / layout.cp));
}

// Whoever needs a step's tokens or targets first loads both: the first stage of a pipeline, and its last.
void ComputeBinder::load_batch(std::int64_t step, MicroBatch micro_batch) const {
  const std::size_t m = micro_batch.index();
  if (training_.loaded[m] == step) return;
  training_.loaded[m] = step;
  const Batches& batches = is_validation(step) ? *validation_ : batches_;
  const std::int64_t number = is_validation(step) ? validation_batch(step) : step;
  const std::size_t all = view_.plan().layout.seq;
  if (positions_.size() == all) {
    return batches.fill(number, view_.data_rank(), micro_batch.value, training_.tokens[m], training_.targets[m]);
  }
  batches.fill(number, view_.data_rank(), micro_batch.value, batch_tokens_, batch_targets_);
  for (std::size_t i = 0; i < training_.tokens[m].size(); ++i) {
    const std::size_t at = i / positions_.size() * all + static_cast<std::size_t>(positions_[i % positions_.size()]);
    training_.tokens[m][i] = batch_tokens_[at];
    training_.targets[m][i] = batch_targets_[at];
  }
}

BoundOperation ComputeBinder::bind_once(const Operation& op) const {
  if (op.role == Role::update) return bind_update(op);
  if (op.key.kind == OpKind::low_rank) {
    return bind_low_rank(view_, parameters_, settings_.seed, training_.compression_errors, op);
  }
  if (is_of_node_shards(view_, parameters_, op)) {
    return bind_node_shards(view_, parameters_, settings_.seed, training_.compression_errors, op);
  }
  if (is_of_compression(op))
    return bind_compression(view_, parameters_, settings_.seed, training_.compression_errors, op);
  if (op.role != Role::grad_norm) no_kernel(op);
  // Every element of the model counts once, so this leaves out those that another rank answers for.
  std::vector<Vector> gradients;
  for (const ParameterState& p : parameters_.all()) {
    if (!parameters_.answers_for(p, GroupKind::norm)) continue;
    const ElementRange own = parameters_.own(p);
    const Vector gradient = parameters_.own_gradient(p);
    for (const HeldTensor& tensor : p.tensors) {
      const ElementRange part = overlap(own, {tensor.offset, tensor.offset + tensor.elements()});
      if (!tensor.copy && !part.empty())
        gradients.push_back(gradient.slice(part.begin - own.begin, part.end - own.begin));
    }
  }
  return [gradients, out = Vector{view_.data(write_of(op, Operand::square_sum)), 1}](Kernels& kernels, std::int64_t) {
    kernels.square_sum(gradients, out);
  };
}

BoundOperation ComputeBinder::bind_update(const Operation& op) const {
  const ParameterState& p = parameters_.of(op.layer, op.subject);
  UpdatedParameter updated{parameters_.own_gradient(p), parameters_.own_weights(p), parameters_.own_moment(p, 0),
                           parameters_.own_moment(p, 1)};
  if (updated.weights.data.type != ElementType::fp32) updated.master = parameters_.own_master(p);
  const ValueId direction = find_read(op, Operand::direction);  // of K-FAC; absent: AdamW or SGD follow the gradient
  if (direction.valid() != (settings_.optimizer == Optimizer::kfac && has_curvature(p.role))) {
    fail("'{}': the plan is made {} K-FAC, and --optimizer is {}", p.name(), direction.valid() ? "with" : "without",
         name_of(settings_.optimizer));
  }
  if (direction.valid()) {
    const ElementRange own = parameters_.own(p);
    return bind_directed_update(p, updated, Vector{view_.data(direction), p.elements}.slice(own.begin, own.end));
  }
  GradientClip clip;
  const ValueId norm = find_read(op, Operand::square_sum);  // absent: gradients are not clipped
  if (norm.valid()) clip = {{view_.data(norm), 1}, view_.plan().layout.clip_grad};
  bool& finite = training_.gradient_is_finite[&p - parameters_.all().data()];
  const auto compute = [this, &p, updated, clip, &finite](Kernels& kernels, std::int64_t step) {
    if (step == 0 && training_.on_first_gradient) training_.on_first_gradient(p, updated.gradient);
    const double rate = learning_rate_at(settings_, step);
    AdamSettings of_adam = settings_.adam;
    SgdSettings of_sgd = settings_.sgd;
    of_adam.learning_rate = of_sgd.learning_rate = rate;
    if (settings_.optimizer == Optimizer::sgd) return kernels.sgd(of_sgd, step + 1, clip, updated, finite);
    kernels.adam(of_adam, step + 1, clip, updated, finite);
  };
  const auto read = [this, &p, &finite](Kernels&, std::int64_t step) {
    if (!finite) throw RunFailed(fmt::format("the gradient of {} is not finite", p.name()));
    if (training_.on_updated) training_.on_updated(step, p);
  };
  return {compute, read};
}

// The direction has its length already, so clipping does not change it.
BoundOperation ComputeBinder::bind_directed_update(const ParameterState& p, UpdatedParameter updated,
                                                   Vector direction) const {
  bool& finite = training_.gradient_is_finite[&p - parameters_.all().data()];
  const Vector gradient = std::exchange(updated.gradient, direction);
  const auto compute = [this, &p, updated, gradient, &finite](Kernels& kernels, std::int64_t step) {
    if (step == 0 && training_.on_first_gradient) training_.on_first_gradient(p, gradient);
    const double peak = settings_.peak_learning_rate();
    const SgdSettings following{
        .learning_rate = peak > 0 ? settings_.kfac.learning_rate * learning_rate_at(settings_, step) / peak : 0,
        .momentum = settings_.kfac.momentum,
        .weight_decay = settings_.adam.weight_decay};
    kernels.sgd(following, step + 1, {}, updated, finite);
  };
  const auto read = [this, &p, &finite](Kernels&, std::int64_t step) {
    if (!finite) throw RunFailed(fmt::format("the gradient of {} is not finite", p.name()));
    if (training_.on_updated) training_.on_updated(step, p);
  };
  return {compute, read};
}

}  // namespace weft
