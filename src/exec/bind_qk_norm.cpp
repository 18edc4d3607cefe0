#include "exec/bind_qk_norm.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

// Says which of the parameter's tensors a head is scaled by.
enum Tensor : std::size_t { kQueryNorm, kKeyNorm };

// Holds the rank's queries, keys and values, each head a matrix of its own.
struct Heads {
  std::vector<Matrix> queries, keys;
  Matrix values;
};

std::vector<Matrix> split_heads(const Matrix& packed, std::int64_t size) {
  std::vector<Matrix> heads;
  for (std::int64_t begin = 0; begin < packed.columns; begin += size) {
    heads.push_back(packed.column_slice(begin, begin + size));
  }
  return heads;
}

// `packed` holds all three side by side, or (context parallelism) the queries alone with keys and values in `pairs`.
Heads heads_of(const RankView& view, const Matrix& packed, const Matrix& pairs) {
  const Transformer& model = view.plan().model;
  const std::int64_t tp = view.plan().layout.tp;
  const std::int64_t queries = model.heads / tp * model.head_dim;
  const std::int64_t keys = std::max<std::int64_t>(1, model.kv_heads / tp) * model.head_dim;
  const Matrix keys_and_values = pairs.empty() ? packed.column_slice(queries, queries + 2 * keys) : pairs;
  WEFT_CHECK(packed.columns == (pairs.empty() ? queries + 2 * keys : queries) && keys_and_values.columns == 2 * keys);
  return {split_heads(packed.column_slice(0, queries), model.head_dim),
          split_heads(keys_and_values.column_slice(0, keys), model.head_dim),
          keys_and_values.column_slice(keys, 2 * keys)};
}

Heads inputs(const RankView& view, const Operands& of) {
  return heads_of(view, of.read(Operand::input), of.find_read(Operand::input_beside));
}
Heads output_grads(const RankView& view, const Operands& of) {
  return heads_of(view, of.read(Operand::output_grad), of.find_read(Operand::output_beside_grad));
}

}  // namespace

KernelCalls bind_qk_norm(const RankView& view, const Operation& op, MicroBatch micro_batch) {
  const Operands of(view, op, micro_batch);
  const ValueId weights = read_of(op, Operand::weight);
  return [x = inputs(view, of), y = heads_of(view, of.write(Operand::output), of.find_write(Operand::output_beside)),
          of_queries = of.norm_of_tensor(weights, kQueryNorm),
          of_keys = of.norm_of_tensor(weights, kKeyNorm)](Kernels& kernels, std::int64_t) {
    for (std::size_t h = 0; h < x.queries.size(); ++h) kernels.norm(x.queries[h], of_queries, y.queries[h]);
    for (std::size_t h = 0; h < x.keys.size(); ++h) kernels.norm(x.keys[h], of_keys, y.keys[h]);
    kernels.copy(x.values, y.values);
  };
}

KernelCalls bind_qk_norm_input_grad(const RankView& view, const Operation& op, MicroBatch micro_batch) {
  const Operands of(view, op, micro_batch);
  const ValueId weights = read_of(op, Operand::weight);
  return [dy = output_grads(view, of), x = inputs(view, of),
          dx = heads_of(view, of.write(Operand::input_grad), of.find_write(Operand::input_beside_grad)),
          of_queries = of.norm_of_tensor(weights, kQueryNorm),
          of_keys = of.norm_of_tensor(weights, kKeyNorm)](Kernels& kernels, std::int64_t) {
    for (std::size_t h = 0; h < x.queries.size(); ++h) {
      kernels.norm_input_grad(dy.queries[h], x.queries[h], of_queries, {}, dx.queries[h]);
    }
    for (std::size_t h = 0; h < x.keys.size(); ++h)
      kernels.norm_input_grad(dy.keys[h], x.keys[h], of_keys, {}, dx.keys[h]);
    kernels.copy(dy.values, dx.values);
  };
}

// All heads of the rank add to the same two gradients.
KernelCalls bind_qk_norm_weight_grad(const RankView& view, const Operation& op, MicroBatch micro_batch, Into into) {
  const Operands of(view, op, micro_batch);
  const ValueId gradient = write_of(op, Operand::weight_grad);
  return [dy = output_grads(view, of), x = inputs(view, of), d_queries = of.norm_of_tensor(gradient, kQueryNorm),
          d_keys = of.norm_of_tensor(gradient, kKeyNorm), into](Kernels& kernels, std::int64_t) {
    const auto add_up = [&](const std::vector<Matrix>& dys, const std::vector<Matrix>& xs, const NormWeights& d) {
      for (std::size_t h = 0; h < xs.size(); ++h) {
        kernels.norm_weight_grad(dys[h], xs[h], d, d.gain, {}, h == 0 ? into : Into::add);
      }
    };
    add_up(dy.queries, x.queries, d_queries);
    add_up(dy.keys, x.keys, d_keys);
  };
}

}  // namespace weft
