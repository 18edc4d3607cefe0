#include "exec/bind_attention.hpp"

#include "base/error.hpp"
#include "exec/train_settings.hpp"

namespace weft {
namespace {

// One call of the kernel: queries that follow each other, with the keys of their whole sequences.
struct AttentionCall {
  AttentionShape shape;
  ElementRange query_rows, key_rows;
  std::int64_t saved_row = 0;  // of the logarithms of sums, or of the softmax
};

// Without context parallelism one call serves all sequences; with it each stretch of each sequence needs its own.
// `rows`: of whole sequences, where the operation is cut; empty: all.
std::vector<AttentionCall> calls_of(const RankView& view, ElementRange rows) {
  const Plan& plan = view.plan();
  const Layout& layout = plan.layout;
  AttentionShape shape{.sequences = 1,
                       .heads = plan.model.heads / layout.tp,
                       .kv_heads = plan.model.kv_heads / layout.tp,
                       .head_size = plan.model.head_dim,
                       .queries = layout.seq,
                       .keys = layout.seq};
  if (plan.model.positions == Positions::rotary) shape.rotary_base = kRotaryBase;
  if (layout.cp == 1) {
    if (rows.empty()) rows = {0, layout.tokens()};
    WEFT_CHECK(rows.begin % layout.seq == 0 && rows.size() % layout.seq == 0);
    shape.sequences = rows.size() / layout.seq;
    return {{shape, rows, rows, rows.begin * shape.heads}};
  }
  std::vector<AttentionCall> calls;
  std::int64_t row = 0;
  for (std::int64_t sequence = 0; sequence < layout.micro_batch; ++sequence) {
    for (const ElementRange& part : view.context_parts()) {
      AttentionCall call{shape, {row, row + part.size()}, {}, row * shape.heads};
      call.key_rows = {sequence * layout.seq, (sequence + 1) * layout.seq};
      call.shape.queries = part.size();
      call.shape.first_position = part.begin;
      calls.push_back(call);
      row += part.size();
    }
  }
  return calls;
}

Matrix rows_of(const Matrix& x, ElementRange rows) {
  return x.row_slice(rows.begin, rows.end);
}

// Queries, keys and values, packed side by side in one matrix or (context parallelism) keys and values in their own.
struct Packed {
  Matrix q, k, v;
};
Packed unpack(const Matrix& queries, const Matrix& keys, const AttentionShape& shape) {
  const std::int64_t q = shape.heads * shape.head_size, kv = shape.kv_heads * shape.head_size;
  const bool apart = !keys.empty();
  WEFT_CHECK(queries.columns == (apart ? q : q + 2 * kv));
  WEFT_CHECK(!apart || keys.columns == 2 * kv);
  const Matrix pairs = apart ? keys : queries.column_slice(q, q + 2 * kv);
  return {queries.column_slice(0, q), pairs.column_slice(0, kv), pairs.column_slice(kv, 2 * kv)};
}

class AttentionBinder {
 public:
  AttentionBinder(const RankView& view, const Operation& op, std::int32_t micro_batch, ElementRange rows)
      : view_(view), of_(view, op, micro_batch), calls_(calls_of(view, rows)) {}

  const std::vector<AttentionCall>& calls() const { return calls_; }

  Packed packed(const Matrix& queries, const Matrix& keys, const AttentionCall& call) const {
    const Packed all = unpack(queries, keys, call.shape);
    return {rows_of(all.q, call.query_rows), rows_of(all.k, call.key_rows), rows_of(all.v, call.key_rows)};
  }

  AttentionSaved saved(ValueId value, const AttentionCall& call) const {
    const std::int64_t rows = call.shape.sequences * call.shape.heads * call.shape.queries;
    AttentionSaved saved;
    float* const data = static_cast<float*>(of_.flat(value).data);
    if (view_.plan().layout.attention == AttentionKernel::flash) {
      saved.log_sums = {data + call.saved_row, rows};
    } else {
      saved.softmax = Matrix::dense(data + call.saved_row * call.shape.keys, rows, call.shape.keys);
    }
    return saved;
  }

 private:
  const RankView& view_;
  Operands of_;
  std::vector<AttentionCall> calls_;
};

}  // namespace

std::function<void(std::int64_t)> bind_attention(const RankView& view, const Operation& op, std::int32_t micro_batch,
                                                 ElementRange rows) {
  const Operands of(view, op, micro_batch);
  const AttentionBinder binder(view, op, micro_batch, rows);
  const Matrix keys = op.reads.size() > 1 ? of.read(1) : Matrix{};
  struct Bound {
    AttentionShape shape;
    Packed in;
    Matrix context;
    AttentionSaved saved;
  };
  std::vector<Bound> calls;
  for (const AttentionCall& call : binder.calls()) {
    calls.push_back({call.shape, binder.packed(of.read(0), keys, call), rows_of(of.write(), call.query_rows),
                     binder.saved(op.writes[1], call)});
  }
  return [calls](std::int64_t) {
    for (const Bound& c : calls) attention(c.shape, c.in.q, c.in.k, c.in.v, c.context, c.saved);
  };
}

std::function<void(std::int64_t)> bind_attention_grad(const RankView& view, const Operation& op,
                                                      std::int32_t micro_batch, ElementRange rows) {
  const Operands of(view, op, micro_batch);
  const AttentionBinder binder(view, op, micro_batch, rows);
  // Reads: queries, keys where they are apart, then the gradient, the context and what forward kept.
  const bool apart = op.writes.size() > 1;
  const std::size_t first = apart ? 2 : 1;
  const Matrix keys = apart ? of.read(1) : Matrix{}, d_keys = apart ? of.write(1) : Matrix{};
  struct Bound {
    AttentionShape shape;
    Packed in, out;
    Matrix context, d_context;
    AttentionSaved saved;
    Into into_keys;
  };
  std::vector<Bound> calls;
  ElementRange written;  // keys whose gradient an earlier call has written
  for (const AttentionCall& call : binder.calls()) {
    calls.push_back({call.shape, binder.packed(of.read(0), keys, call), binder.packed(of.write(), d_keys, call),
                     rows_of(of.read(first + 1), call.query_rows), rows_of(of.read(first), call.query_rows),
                     binder.saved(op.reads[first + 2].value, call),
                     written == call.key_rows ? Into::add : Into::overwrite});
    written = call.key_rows;
  }
  return [calls](std::int64_t) {
    for (const Bound& c : calls) {
      attention_input_grad(c.shape, c.in.q, c.in.k, c.in.v, c.context, c.saved, c.d_context, c.out.q, c.out.k, c.out.v,
                           c.into_keys);
    }
  };
}

}  // namespace weft
