#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 3e-6;

// The rotation of Llama's models: x cos + rotate_half(x) sin.
at::Tensor rotated(const at::Tensor& x, double base, std::int64_t first) {  // [sequence, head, token, column]
  if (base == 0) return x;
  const std::int64_t size = x.size(3);
  const at::Tensor frequency = at::pow(base, -at::arange(0, size, 2, at::kDouble) / size);
  const at::Tensor positions = at::arange(first, first + x.size(2), at::kDouble);
  const at::Tensor angle = at::cat({at::outer(positions, frequency), at::outer(positions, frequency)}, 1);
  const auto halves = x.chunk(2, 3);
  return x * angle.cos() + at::cat({-halves[1], halves[0]}, 3) * angle.sin();
}

at::Tensor heads_apart(const at::Tensor& x, std::int64_t sequences, std::int64_t heads) {
  return x.view({sequences, x.size(0) / sequences, heads, x.size(1) / heads}).transpose(1, 2);
}

at::Tensor probabilities_of(const AttentionShape& s, const at::Tensor& q, const at::Tensor& k) {
  const at::Tensor queries = rotated(heads_apart(q, s.sequences, s.heads), s.rotary_base, s.first_position);
  const at::Tensor keys =
      rotated(heads_apart(k, s.sequences, s.kv_heads), s.rotary_base, 0).repeat_interleave(s.heads / s.kv_heads, 1);
  const at::Tensor hidden = at::ones({s.queries, s.keys}, at::kBool).triu(s.first_position + 1);
  const at::Tensor scores = queries.matmul(keys.transpose(2, 3)) / std::sqrt(static_cast<double>(s.head_size));
  return at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
}

at::Tensor exact_attention(const AttentionShape& s, const std::vector<at::Tensor>& in) {
  const at::Tensor values = heads_apart(in[2], s.sequences, s.kv_heads).repeat_interleave(s.heads / s.kv_heads, 1);
  return probabilities_of(s, in[0], in[1]).matmul(values).transpose(1, 2).reshape(in[0].sizes());
}

enum class Keeps { log_sums, softmax };
class Attention : public testing::TestWithParam<std::tuple<AttentionShape, Keeps>> {
 protected:
  AttentionShape shape = std::get<0>(GetParam());
  bool keeps_softmax = std::get<1>(GetParam()) == Keeps::softmax;
  std::int64_t query_rows = shape.sequences * shape.queries, key_rows = shape.sequences * shape.keys;
  std::int64_t query_columns = shape.heads * shape.head_size, key_columns = shape.kv_heads * shape.head_size;
  at::Tensor q = random_tensor({query_rows, query_columns}, 1), k = random_tensor({key_rows, key_columns}, 2),
             v = random_tensor({key_rows, key_columns}, 3), d_context = random_tensor({query_rows, query_columns}, 4);
  SlicedTensor softmax{shape.sequences * shape.heads * shape.queries, shape.keys};
  at::Tensor log_sums = at::empty({shape.sequences * shape.heads * shape.queries});
  AttentionSaved saved{keeps_softmax ? Vector{} : vector_of(log_sums), keeps_softmax ? softmax.matrix() : Matrix{}};
  SlicedTensor of_q{q}, of_k{k}, of_v{v}, context{query_rows, query_columns};

  void forward() { kernels().attention(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(), saved); }
};

TEST_P(Attention, ForwardAndWhatItSaves) {
  forward();
  const at::Tensor exact_q = q.to(at::kDouble), exact_k = k.to(at::kDouble);
  EXPECT_LE(relative_error(context.values(), exact_attention(shape, {exact_q, exact_k, v.to(at::kDouble)})),
            kTolerance);
  if (keeps_softmax) {
    const at::Tensor exact = probabilities_of(shape, exact_q, exact_k).reshape({-1, shape.keys});
    EXPECT_LE(relative_error(softmax.values(), exact), kTolerance);
    EXPECT_TRUE(softmax.values().masked_select(exact.eq(0)).eq(0).all().item<bool>());
    EXPECT_TRUE(softmax.surroundings_intact());
  }
  EXPECT_TRUE(context.surroundings_intact());
}

TEST_P(Attention, Gradients) {
  forward();
  const SlicedTensor dq(query_rows, query_columns), dk(key_rows, key_columns), dv(key_rows, key_columns);
  kernels().attention_input_grad(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(), saved,
                                 SlicedTensor(d_context).matrix(), dq.matrix(), dk.matrix(), dv.matrix());
  const Oracle oracle = ask_oracle([&](const auto& in) { return exact_attention(shape, in); }, {q, k, v}, d_context);
  // Of a single key the softmax is 1 whatever the scores: the exact gradient is 0, ours must be too.
  EXPECT_LE(relative_error(dq.values(), oracle.gradients[0]), kTolerance);
  EXPECT_LE(relative_error(dk.values(), oracle.gradients[1]), kTolerance);
  EXPECT_LE(relative_error(dv.values(), oracle.gradients[2]), kTolerance);
  EXPECT_TRUE(dq.surroundings_intact() && dk.surroundings_intact() && dv.surroundings_intact());
}

constexpr AttentionShape kShapes[] = {
    {.sequences = 1, .heads = 1, .kv_heads = 1, .head_size = 2, .queries = 1, .keys = 1},
    {.sequences = 2, .heads = 3, .kv_heads = 3, .head_size = 5, .queries = 7, .keys = 7},
    {.sequences = 2, .heads = 2, .kv_heads = 2, .head_size = 16, .queries = 64, .keys = 64},
    {.sequences = 1, .heads = 2, .kv_heads = 1, .head_size = 8, .queries = 130, .keys = 130},  // three blocks
    {.sequences = 2, .heads = 6, .kv_heads = 2, .head_size = 8, .queries = 9, .keys = 9},      // grouped
    {.sequences = 2, .heads = 4, .kv_heads = 2, .head_size = 6, .queries = 70, .keys = 70, .rotary_base = 10000},
    {.sequences = 2, .heads = 2, .kv_heads = 1, .head_size = 8, .queries = 5, .keys = 13, .first_position = 8},
    {.sequences = 1, .heads = 2, .kv_heads = 2, .head_size = 8, .queries = 5, .keys = 13, .first_position = 3},
    {.sequences = 2,
     .heads = 4,
     .kv_heads = 2,
     .head_size = 8,
     .queries = 66,
     .keys = 140,
     .first_position = 70,
     .rotary_base = 500},
    {.sequences = 1, .heads = 1, .kv_heads = 1, .head_size = 4, .queries = 3, .keys = 4, .first_position = 9},
};
INSTANTIATE_TEST_SUITE_P(Shapes, Attention,
                         testing::Combine(testing::ValuesIn(kShapes),
                                          testing::Values(Keeps::log_sums, Keeps::softmax)));

TEST(AttentionSlices, HalvesOfTheQueriesAddUpToTheWhole) {
  const AttentionShape whole{.heads = 2, .kv_heads = 1, .head_size = 4, .queries = 10, .keys = 10, .rotary_base = 100};
  AttentionShape tail = whole;
  tail.queries = 4;
  tail.first_position = 6;
  const at::Tensor q = random_tensor({10, 8}, 1), k = random_tensor({10, 4}, 2), v = random_tensor({10, 4}, 3);
  const SlicedTensor of_q(q), of_k(k), of_v(v), context(10, 8), of_tail(4, 8);
  const at::Tensor log_sums = at::empty({20}), tail_sums = at::empty({8});
  kernels().attention(whole, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(), {vector_of(log_sums), {}});
  kernels().attention(tail, of_q.matrix().row_slice(6, 10), of_k.matrix(), of_v.matrix(), of_tail.matrix(),
                      {vector_of(tail_sums), {}});
  EXPECT_LE(relative_error(of_tail.values(), context.values().narrow(0, 6, 4)), kTolerance);
  EXPECT_LE(relative_error(tail_sums.view({2, 4}), log_sums.view({2, 10}).narrow(1, 6, 4)), kTolerance);
}

// The slope of the whole function along one direction, by central differences in our own fp32 forward.
TEST(AttentionFiniteDifferences, AgreeWithTheGradient) {
  const AttentionShape shape{.heads = 2, .kv_heads = 1, .head_size = 4, .queries = 6, .keys = 6, .rotary_base = 100};
  const at::Tensor q = random_tensor({6, 8}, 1), k = random_tensor({6, 4}, 2), v = random_tensor({6, 4}, 3);
  const at::Tensor direction = random_tensor({6, 4}, 5), weights = random_tensor({6, 8}, 6);
  const at::Tensor log_sums = at::empty({12});
  const SlicedTensor of_q(q), of_v(v), context(6, 8);
  const auto value_at = [&](double distance) {
    const SlicedTensor of_k(k + distance * direction);
    kernels().attention(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(),
                        {vector_of(log_sums), {}});
    return (context.values().to(at::kDouble) * weights).sum().item<double>();
  };
  const double slope = (value_at(1e-2) - value_at(-1e-2)) / 2e-2;
  value_at(0);
  const SlicedTensor dq(6, 8), dk(6, 4), dv(6, 4), of_k(k);
  kernels().attention_input_grad(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(),
                                 {vector_of(log_sums), {}}, SlicedTensor(weights).matrix(), dq.matrix(), dk.matrix(),
                                 dv.matrix());
  EXPECT_NEAR((dk.values() * direction).sum().item<double>(), slope, 1e-3 * (1 + std::abs(slope)));
}

}  // namespace
}  // namespace weft
