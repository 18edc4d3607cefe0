#include "exec/bind_attention.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "exec/dropout_places.hpp"
#include "exec/train_settings.hpp"

namespace weft {
namespace {

// One call of the kernel works on queries that follow each other, with the keys of their whole sequences.
struct AttentionCall {
  AttentionShape shape;
  ElementRange query_rows, key_rows;
  std::int64_t saved_row = 0;         // of the logarithms of sums, or of the softmax
  std::vector<std::int64_t> samples;  // of its sequences, for dropout
};

AttentionShape shape_of(const RankView& view) {
  const Transformer& model = view.plan().model;
  const Layout& layout = view.plan().layout;
  AttentionShape shape{.sequences = 1,
                       .heads = model.heads / layout.tp,
                       .kv_heads = std::max<std::int64_t>(1, model.kv_heads / layout.tp),
                       .head_size = model.head_dim,
                       .queries = layout.seq,
                       .keys = layout.seq};
  if (model.positions == Positions::rotary) shape.rotary_base = kRotaryBase;
  if (model.latent) {
    // Every head has its key's own columns, then its value.
    shape.value_size = model.latent->value_head_dim;
    shape.key_pitch = shape.value_pitch = model.latent->nope_head_dim + shape.value_size;
  }
  if (has_dropout(model, layout)) {
    shape.dropout.rate = model.dropout.attention;
    shape.dropout.first_head = view.coordinate(Axis::tp) * shape.heads;
    shape.dropout.heads = model.heads;
    shape.dropout.length = layout.seq;
  }
  return shape;
}

// Without context parallelism one call serves all sequences; with it each stretch of each sequence, or of a slice of
// it, needs its own. A slice meets the keys up to its end. Where the operation is cut, `rows` are those of whole
// sequences; empty means all.
std::vector<AttentionCall> calls_of(const RankView& view, const Operation& op, MicroBatch micro_batch,
                                    ElementRange rows) {
  const Layout& layout = view.plan().layout;
  AttentionShape shape = shape_of(view);
  const std::vector<std::int64_t> samples = sample_numbers(view, view.micro_batch_of_step(op, micro_batch));
  if (layout.has_slices()) shape.keys = layout.slice(op.turn).end;
  if (layout.cp == 1 && !layout.has_slices()) {
    if (rows.empty()) rows = {0, layout.tokens()};
    WEFT_CHECK(rows.begin % layout.seq == 0 && rows.size() % layout.seq == 0);
    shape.sequences = rows.size() / layout.seq;
    const auto first = samples.begin() + rows.begin / layout.seq;
    return {{shape, rows, rows, rows.begin * shape.heads, {first, first + shape.sequences}}};
  }
  std::vector<AttentionCall> calls;
  std::int64_t row = 0;
  for (std::int64_t sequence = 0; sequence < layout.micro_batch; ++sequence) {
    for (const ElementRange& part : view.positions_held(op)) {
      AttentionCall call{shape, {row, row + part.size()}, {}, row * shape.heads, {}};
      call.key_rows = {sequence * shape.keys, (sequence + 1) * shape.keys};
      call.shape.queries = part.size();
      call.shape.first_position = part.begin;
      call.samples = {samples[sequence]};
      calls.push_back(call);
      row += part.size();
    }
  }
  return calls;
}

Matrix rows_of(const Matrix& x, ElementRange rows) {
  return x.empty() ? x : x.row_slice(rows.begin, rows.end);
}

// Queries, keys and values: side by side in one matrix; keys and values in their own (context parallelism, copies of
// key heads); or every head's key and value in turn, with a key that all heads share.
struct Packed {
  Matrix q, k, v, shared_key;
};
Packed unpack(const AttentionCall& call, const Matrix& queries, const Matrix& pairs, const Matrix& shared_key) {
  const AttentionShape& shape = call.shape;
  const std::int64_t q = shape.heads * shape.head_size, kv = shape.kv_heads * shape.head_size;
  Packed all;
  if (!shared_key.empty()) {
    const std::int64_t own = shape.head_size - shared_key.columns;
    all = {queries, pairs, pairs.column_slice(own, pairs.columns), shared_key};
  } else {
    const bool apart = !pairs.empty();
    WEFT_CHECK(queries.columns == (apart ? q : q + 2 * kv));
    WEFT_CHECK(!apart || pairs.columns == 2 * kv);
    const Matrix both = apart ? pairs : queries.column_slice(q, q + 2 * kv);
    all = {queries.column_slice(0, q), both.column_slice(0, kv), both.column_slice(kv, 2 * kv), {}};
  }
  return {rows_of(all.q, call.query_rows), rows_of(all.k, call.key_rows), rows_of(all.v, call.key_rows),
          rows_of(all.shared_key, call.key_rows)};
}

Packed packed_inputs(const AttentionCall& call, const Operands& of) {
  return unpack(call, of.read(Operand::queries), of.find_read(Operand::keys_values), of.find_read(Operand::rotary_key));
}

Packed packed_grads(const AttentionCall& call, const Operands& of) {
  return unpack(call, of.write(Operand::queries_grad), of.find_write(Operand::keys_values_grad),
                of.find_write(Operand::rotary_key_grad));
}

// Forward keeps the logarithms of sums; or the softmax, with dropout also what was kept and what that left.
// `find` gives the value of an operand that forward writes or backward reads.
template <class Find>
AttentionSaved saved_in(const Operands& of, const Find& find, const AttentionCall& call) {
  const std::int64_t rows = call.shape.sequences * call.shape.heads * call.shape.queries, keys = call.shape.keys;
  AttentionSaved saved;
  const auto data = [&](ValueId value) { return of.flat(value).data; };
  if (const ValueId log_sums = find(Operand::log_sums); log_sums.valid()) {
    saved.log_sums = {data(log_sums) + call.saved_row, rows};
    return saved;
  }
  const std::int64_t first = call.saved_row * keys;
  saved.softmax = Matrix::dense(data(find(Operand::softmax)) + first, rows, keys);
  const ValueId kept = find(Operand::kept_elements);
  if (!kept.valid()) return saved;
  saved.kept = of.kept(kept).subspan(first, rows * keys);
  saved.dropped = Matrix::dense(data(find(Operand::dropped_softmax)) + first, rows, keys);
  return saved;
}

// Returns the shape with what dropout draws from at a step.
AttentionShape shape_at(const AttentionCall& call, std::uint64_t seed, std::int64_t step, std::int32_t layer) {
  AttentionShape shape = call.shape;
  if (is_validation(step)) shape.dropout.rate = 0;
  if (shape.dropout.rate > 0) {
    shape.dropout.key = dropout_key(seed, step, layer, DropoutSite::attention);
    shape.dropout.samples = call.samples;
  }
  return shape;
}

}  // namespace

KernelCalls bind_attention(const RankView& view, std::uint64_t seed, const Operation& op, MicroBatch micro_batch,
                           ElementRange rows) {
  const Operands of(view, op, micro_batch);
  const auto written = [&](Operand operand) { return find_write(op, operand); };
  struct Bound {
    AttentionCall call;
    Packed in;
    Matrix context;
    AttentionSaved saved;
  };
  std::vector<Bound> calls;
  for (const AttentionCall& call : calls_of(view, op, micro_batch, rows)) {
    calls.push_back({call, packed_inputs(call, of), rows_of(of.write(Operand::output), call.query_rows),
                     saved_in(of, written, call)});
  }
  return [calls, seed, layer = op.layer](Kernels& kernels, std::int64_t step) {
    for (const Bound& c : calls) {
      kernels.attention(shape_at(c.call, seed, step, layer), c.in.q, c.in.k, c.in.v, c.context, c.saved,
                        c.in.shared_key);
    }
  };
}

KernelCalls bind_attention_grad(const RankView& view, std::uint64_t seed, const Operation& op, MicroBatch micro_batch,
                                ElementRange rows) {
  const Operands of(view, op, micro_batch);
  const auto read = [&](Operand operand) { return find_read(op, operand); };
  struct Bound {
    AttentionCall call;
    Packed in, out;
    Matrix context, d_context;
    AttentionSaved saved;
    Into into_keys;
  };
  std::vector<Bound> calls;
  ElementRange written;  // keys whose gradient an earlier call has written
  for (const AttentionCall& call : calls_of(view, op, micro_batch, rows)) {
    calls.push_back({call, packed_inputs(call, of), packed_grads(call, of),
                     rows_of(of.read(Operand::output), call.query_rows),
                     rows_of(of.read(Operand::output_grad), call.query_rows), saved_in(of, read, call),
                     written == call.key_rows ? Into::add : Into::overwrite});
    written = call.key_rows;
  }
  return [calls, seed, layer = op.layer](Kernels& kernels, std::int64_t step) {
    for (const Bound& c : calls) {
      kernels.attention_input_grad(shape_at(c.call, seed, step, layer), c.in.q, c.in.k, c.in.v, c.context, c.saved,
                                   c.d_context, c.out.q, c.out.k, c.out.v, c.into_keys, c.in.shared_key,
                                   c.out.shared_key);
    }
  };
}

}  // namespace weft
