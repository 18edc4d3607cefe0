#include "exec/bind_compute.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "exec/operands.hpp"

namespace weft {
namespace {

[[noreturn]] void no_kernel(const Operation& op) {
  fail("weft run has no kernel yet for '{}'", describe(op));
}

// The columns of the packed projections.
struct Packed {
  Matrix q, k, v;
};
Packed unpack(const Matrix& qkv, const AttentionShape& shape) {
  const std::int64_t q = shape.heads * shape.head_size, kv = shape.kv_heads * shape.head_size;
  WEFT_CHECK(qkv.columns == q + 2 * kv);
  return {qkv.column_slice(0, q), qkv.column_slice(q, q + kv), qkv.column_slice(q + kv, q + 2 * kv)};
}

}  // namespace

ComputeBinder::ComputeBinder(const RankView& view, const ParameterStates& parameters, const TrainSettings& settings,
                             const Batches& batches, RankTraining& training)
    : view_(view), parameters_(parameters), settings_(settings), batches_(batches), training_(training) {
  const Layout& layout = view.plan().layout;
  const auto tokens = static_cast<std::size_t>(layout.tokens());
  const auto micro_batches = static_cast<std::size_t>(layout.micro_batches());
  training_.tokens.assign(micro_batches, std::vector<std::int64_t>(tokens));
  training_.targets = training_.tokens;
  training_.positions.resize(static_cast<std::size_t>(layout.seq));
  std::iota(training_.positions.begin(), training_.positions.end(), 0);
  training_.loss_sums.assign(static_cast<std::size_t>(settings.steps), 0.0);
}

BoundOperation ComputeBinder::bind(OpId id, std::int32_t micro_batch) const {
  const Operation& op = view_.plan().graph.op(id);
  std::vector<BoundOperation> pieces;
  for (const Origin& origin : op.origins) {
    const Operation& original = view_.original().op(origin.operation);
    const bool first = view_.writes_first(original.writes.front(), id, micro_batch);
    pieces.push_back(bind_one(original, micro_batch, first));
  }
  if (pieces.size() == 1) return pieces.front();
  return [pieces](std::int64_t step) {
    for (const BoundOperation& piece : pieces) piece(step);
  };
}

BoundOperation ComputeBinder::bind_one(const Operation& op, std::int32_t micro_batch, bool first_write) const {
  switch (op.phase) {
    case Phase::forward:
    case Phase::recompute:
      return bind_forward(op, micro_batch);
    case Phase::input_grad:
      return bind_input_grad(op, micro_batch);
    case Phase::weight_grad:
      return bind_weight_grad(op, micro_batch, first_write ? Into::overwrite : Into::add);
    case Phase::optimizer:
      return bind_once(op);
  }
  no_kernel(op);
}

BoundOperation ComputeBinder::bind_forward(const Operation& op, std::int32_t micro_batch) const {
  const Operands of(view_, op, micro_batch);
  switch (op.role) {
    case Role::embedding:
      return bind_embedding(op, micro_batch);
    case Role::attention_norm:
    case Role::ffn_norm:
    case Role::final_norm:
      return [x = of.read(0), w = of.norm(op.reads[1].value), y = of.write()](std::int64_t) { norm(x, w, y); };
    case Role::qkv:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::head:
      return [x = of.read(0), w = of.weight(op.reads[1].value), b = of.bias(op.reads[1].value),
              y = of.write()](std::int64_t) { linear(x, w, b, y); };
    case Role::attention:
      return bind_attention(op, micro_batch, false);
    case Role::attention_residual:
    case Role::ffn_residual:
      return [a = of.read(0), b = of.read(1), y = of.write()](std::int64_t) { add(a, b, y); };
    case Role::ffn_act:
      if (view_.plan().model.activation == Activation::swiglu) {
        return [x = of.read(0), y = of.write()](std::int64_t) { swiglu(x, y); };
      }
      return [x = of.read(0), y = of.write()](std::int64_t) { gelu(x, y); };
    case Role::loss:
      return bind_loss(op, micro_batch, false);
    default:
      no_kernel(op);
  }
}

BoundOperation ComputeBinder::bind_input_grad(const Operation& op, std::int32_t micro_batch) const {
  const Operands of(view_, op, micro_batch);
  switch (op.role) {
    case Role::attention_norm:
    case Role::ffn_norm:
    case Role::final_norm: {
      const Matrix residual = op.reads.size() == 4 ? of.read(2) : Matrix{};
      return [dy = of.read(0), x = of.read(1), residual, w = of.norm(op.reads.back().value),
              dx = of.write()](std::int64_t) { norm_input_grad(dy, x, w, residual, dx); };
    }
    case Role::qkv:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::head:
      WEFT_CHECK(op.reads.size() == 2);
      return [dy = of.read(0), w = of.weight(op.reads[1].value), dx = of.write()](std::int64_t) {
        linear_input_grad(dy, w, dx);
      };
    case Role::attention:
      return bind_attention(op, micro_batch, true);
    case Role::ffn_act:
      if (view_.plan().model.activation == Activation::swiglu) {
        return [dy = of.read(0), x = of.read(1), dx = of.write()](std::int64_t) { swiglu_input_grad(dy, x, dx); };
      }
      return [dy = of.read(0), x = of.read(1), dx = of.write()](std::int64_t) { gelu_input_grad(dy, x, dx); };
    case Role::loss:
      return bind_loss(op, micro_batch, true);
    default:
      no_kernel(op);
  }
}

BoundOperation ComputeBinder::bind_weight_grad(const Operation& op, std::int32_t micro_batch, Into into) const {
  const Operands of(view_, op, micro_batch);
  const ValueId gradient = op.writes.front();
  switch (op.role) {
    case Role::attention_norm:
    case Role::ffn_norm:
    case Role::final_norm: {
      // The gradient has the layout of the weights. dW needs no weights themselves, but whether there is a bias.
      const NormWeights d = of.norm(gradient);
      return [x = of.read(0), dy = of.read(1), d, into](std::int64_t) {
        norm_weight_grad(dy, x, d, d.gain, d.bias, into);
      };
    }
    case Role::qkv:
    case Role::attention_out:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::head:
      WEFT_CHECK(op.reads.size() == 2);
      return [x = of.read(0), dy = of.read(1), dw = of.weight(gradient), db = of.bias(gradient), into](std::int64_t) {
        linear_weight_grad(x, dy, dw, db, into);
      };
    case Role::embedding:
      return [&tokens = training_.tokens[static_cast<std::size_t>(micro_batch)], dy = of.read(0),
              dw = of.weight(gradient), into](std::int64_t) { embedding_weight_grad(tokens, dy, dw, 0, into); };
    case Role::positions: {
      const LearnedPositions d{of.weight(gradient), training_.positions};
      return [dy = of.read(0), d, into](std::int64_t) { positions_weight_grad(dy, d, into); };
    }
    default:
      no_kernel(op);
  }
}

BoundOperation ComputeBinder::bind_embedding(const Operation& op, std::int32_t micro_batch) const {
  const Operands of(view_, op, micro_batch);
  LearnedPositions positions;
  if (op.reads.size() > 1) {
    Operation table = op;
    table.role = Role::positions;
    positions = {Operands(view_, table, micro_batch).weight(op.reads[1].value), training_.positions};
  }
  auto& tokens = training_.tokens[static_cast<std::size_t>(micro_batch)];
  auto& targets = training_.targets[static_cast<std::size_t>(micro_batch)];
  return [this, micro_batch, &tokens, &targets, positions, table = of.weight(op.reads[0].value),
          y = of.write()](std::int64_t step) {
    batches_.fill(step, view_.data_rank(), micro_batch, tokens, targets);
    embedding(tokens, table, 0, positions, y);
  };
}

BoundOperation ComputeBinder::bind_attention(const Operation& op, std::int32_t micro_batch, bool backward) const {
  const Operands of(view_, op, micro_batch);
  const Plan& plan = view_.plan();
  if (plan.layout.cp > 1 || plan.layout.tp > 1) no_kernel(op);
  AttentionShape shape{.sequences = plan.layout.micro_batch,
                       .heads = plan.model.heads,
                       .kv_heads = plan.model.kv_heads,
                       .head_size = plan.model.head_dim,
                       .queries = plan.layout.seq,
                       .keys = plan.layout.seq};
  if (plan.model.positions == Positions::rotary) shape.rotary_base = kRotaryBase;
  const auto saved_in = [&](ValueId value) {
    AttentionSaved saved;
    if (plan.layout.attention == AttentionKernel::flash) {
      saved.log_sums = of.flat(value);
    } else {
      const std::int64_t rows = shape.sequences * shape.heads * shape.queries;
      saved.softmax = Matrix::dense(view_.data(value, micro_batch), rows, shape.keys);
    }
    return saved;
  };
  const Packed in = unpack(of.read(0), shape);
  if (!backward) {
    return [shape, in, context = of.write(), saved = saved_in(op.writes[1])](std::int64_t) {
      attention(shape, in.q, in.k, in.v, context, saved);
    };
  }
  const Packed d = unpack(of.write(), shape);
  return [shape, in, d, d_context = of.read(1), context = of.read(2), saved = saved_in(op.reads[3].value)](
             std::int64_t) { attention_input_grad(shape, in.q, in.k, in.v, context, saved, d_context, d.q, d.k, d.v); };
}

BoundOperation ComputeBinder::bind_loss(const Operation& op, std::int32_t micro_batch, bool backward) const {
  const Operands of(view_, op, micro_batch);
  const Layout& layout = view_.plan().layout;
  if (layout.tp > 1) no_kernel(op);
  const auto& targets = training_.targets[static_cast<std::size_t>(micro_batch)];
  if (backward) {
    // Gradients are summed over micro-batches and ranks, so each carries its share of the mean.
    const double scale = 1 / static_cast<double>(layout.global_batch * layout.seq);
    return [&targets, scale, p = of.read(0), dx = of.write()](std::int64_t) {
      cross_entropy_input_grad(p, targets, 0, scale, dx);
    };
  }
  return [&targets, this, micro_batch, logits = of.read(0), p = of.write()](std::int64_t step) {
    const double sum = cross_entropy(logits, targets, view_.plan().model.vocab, p);
    training_.loss_sums[static_cast<std::size_t>(step)] += sum;
    if (!std::isfinite(sum)) throw RunFailed(fmt::format("the loss is not finite{}", first_not_finite(micro_batch)));
  };
}

// The first result of forward, among those that backward still needs, that holds a NaN or an infinity.
std::string ComputeBinder::first_not_finite(std::int32_t micro_batch) const {
  const StepGraph& graph = view_.original();
  std::vector<bool> kept(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    if (op.phase != Phase::input_grad && op.phase != Phase::weight_grad) continue;
    for (const Read& read : op.reads) kept[read.value.index()] = true;
  }
  for (const Operation& op : graph.operations) {
    if (op.phase != Phase::forward || op.is_transfer() || op.rank_class != view_.rank_class()) continue;
    for (const ValueId value : op.writes) {
      if (kept[value.index()] && !std::isfinite(square_sum(Operands(view_, op, micro_batch).flat(value)))) {
        return fmt::format("; the first such result is that of {}", describe(op));
      }
    }
  }
  return "";
}

BoundOperation ComputeBinder::bind_once(const Operation& op) const {
  if (op.role == Role::update) return bind_update(op);
  if (op.role != Role::grad_norm) no_kernel(op);
  std::vector<Vector> gradients;
  for (const ParameterState& p : parameters_.all()) gradients.push_back(parameters_.own_gradient(p));
  return [gradients, out = view_.data(op.writes.front(), -1)](std::int64_t) {
    double sum = 0;
    for (const Vector& gradient : gradients) sum += square_sum(gradient);
    *out = static_cast<float>(sum);
  };
}

BoundOperation ComputeBinder::bind_update(const Operation& op) const {
  const ParameterState& p = parameters_.of(op.layer, op.subject);
  const Vector weights = parameters_.own_weights(p), gradient = parameters_.own_gradient(p),
               first = parameters_.own_moment(p, 0), second = parameters_.own_moment(p, 1);
  const bool clips = op.reads.size() > 3;
  const float* const square = clips ? view_.data(op.reads[3].value, -1) : nullptr;
  return
      [this, &p, weights, gradient, first, second, square, limit = view_.plan().layout.clip_grad](std::int64_t step) {
        if (step == 0 && training_.on_first_gradient) training_.on_first_gradient(p, gradient);
        double scale = 1;
        if (square != nullptr) scale = std::min(1.0, limit / (std::sqrt(static_cast<double>(*square)) + kClipEpsilon));
        const bool finite = settings_.optimizer == Optimizer::adam
                                ? adam(settings_.adam, step + 1, scale, gradient, weights, first, second)
                                : sgd(settings_.sgd, step + 1, scale, gradient, weights, first);
        if (!finite) throw RunFailed(fmt::format("the gradient of {} is not finite", p.name()));
      };
}

}  // namespace weft
