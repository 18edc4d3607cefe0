#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

at::Tensor as_tensor(std::vector<std::uint8_t>& kept, std::int64_t columns) {
  return at::from_blob(kept.data(), {std::ssize(kept) / columns, columns}, at::kByte).to(at::kFloat);
}

// The bytes of ones, as one call draws them for these rows.
at::Tensor drawn(double rate, std::uint64_t key, const std::vector<std::int64_t>& rows, std::int64_t columns) {
  std::vector<std::uint8_t> kept(rows.size() * static_cast<std::size_t>(columns));
  const SlicedTensor x(at::ones({std::ssize(rows), columns})), y(std::ssize(rows), columns);
  kernels().dropout(x.matrix(), {rate, key, rows}, {}, kept, y.matrix());
  return as_tensor(kept, columns).clone();
}

TEST(Dropout, KeepsAndScalesWhatItsBytesSay) {
  for (const double rate : {0.0, 0.1, 0.75}) {
    const std::int64_t rows = 7, columns = 33;
    const at::Tensor x = random_tensor({rows, columns}, 1), stream = random_tensor({rows, columns}, 2);
    std::vector<std::uint8_t> kept(rows * columns, 9);
    const SlicedTensor alone(rows, columns), sum(rows, columns), dx(rows, columns);
    kernels().dropout(SlicedTensor(x).matrix(), {rate, 5, numbers(3, rows)}, {}, kept, alone.matrix());
    const at::Tensor factors = as_tensor(kept, columns).clone() / (1 - rate);
    EXPECT_LE(relative_error(alone.values(), x * factors), 2e-7);
    kernels().dropout(SlicedTensor(x).matrix(), {rate, 5, numbers(3, rows)}, SlicedTensor(stream).matrix(), kept,
                      sum.matrix());
    EXPECT_LE(relative_error(sum.values(), x * factors + stream), 2e-7);
    kernels().dropout_input_grad(SlicedTensor(x).matrix(), rate, kept, dx.matrix());
    EXPECT_LE(relative_error(dx.values(), x * factors), 2e-7);
    EXPECT_TRUE(alone.surroundings_intact() && sum.surroundings_intact() && dx.surroundings_intact());
    EXPECT_EQ(alone.values().equal(x), rate == 0);
  }
}

// Whoever holds a row draws the same for it.
TEST(Dropout, DependsOnTheNumberOfARowAndNotOnItsPlace) {
  const at::Tensor all = drawn(0.5, 11, numbers(0, 8), 70);
  const at::Tensor some = drawn(0.5, 11, {5, 2}, 70);
  EXPECT_TRUE(some[0].equal(all[5]) && some[1].equal(all[2]));
  EXPECT_FALSE(all[0].equal(all[1]));
  EXPECT_FALSE(drawn(0.5, 12, numbers(0, 8), 70).equal(all));
}

// Of n independent draws with probability p the share deviates by sqrt(p (1 - p) / n); neighbours agree as often as
// independent ones do. Within five deviations.
TEST(Dropout, DrawsItsRateAndNeighboursIndependently) {
  const std::int64_t rows = 500, columns = 400;
  const double n = static_cast<double>(rows * columns);
  for (const double rate : {0.1, 0.5}) {
    const at::Tensor kept = drawn(rate, 77, numbers(0, rows), columns);
    const auto near = [&](double found, double expected) {
      EXPECT_NEAR(found, expected, 5 * std::sqrt(expected * (1 - expected) / n)) << rate;
    };
    near(kept.mean().item<double>(), 1 - rate);
    const double both = (1 - rate) * (1 - rate);
    near((kept.narrow(0, 1, rows - 1) * kept.narrow(0, 0, rows - 1)).mean().item<double>(), both);
    near((kept.narrow(1, 1, columns - 1) * kept.narrow(1, 0, columns - 1)).mean().item<double>(), both);
    near((drawn(rate, 78, numbers(0, rows), columns) * kept).mean().item<double>(), both);
  }
}

// Attention with dropout of the softmax, against autograd with the elements that a kernel that keeps them says; the one
// that draws them again computes the same.
TEST(AttentionDropout, ForwardAndGradients) {
  const std::vector<std::int64_t> samples{4, 9};
  AttentionShape shape{.sequences = 2, .heads = 2, .kv_heads = 1, .head_size = 8, .queries = 70, .keys = 90};
  shape.first_position = 20;
  shape.dropout = {.rate = 0.3, .key = 99, .samples = samples, .first_head = 2, .heads = 6, .length = 90};
  const std::int64_t rows = 2 * 70, key_rows = 2 * 90, softmax_rows = 2 * 2 * 70;
  const at::Tensor q = random_tensor({rows, 16}, 1), k = random_tensor({key_rows, 8}, 2),
                   v = random_tensor({key_rows, 8}, 3), d_context = random_tensor({rows, 16}, 4);
  std::vector<std::uint8_t> kept(softmax_rows * 90, 9);
  at::Tensor softmax = at::empty({softmax_rows, 90}), dropped = at::empty({softmax_rows, 90}),
             log_sums = at::empty({softmax_rows});
  const auto dense = [](const at::Tensor& x) { return Matrix::dense(x.data_ptr<float>(), x.size(0), x.size(1)); };
  const std::vector<AttentionSaved> saved{{{}, dense(softmax), kept, dense(dropped)}, {vector_of(log_sums), {}}};
  const auto heads_apart = [](const at::Tensor& x, std::int64_t heads) {
    return x.view({2, x.size(0) / 2, heads, x.size(1) / heads}).transpose(1, 2);
  };
  Oracle oracle;
  for (const AttentionSaved& keeps : saved) {
    const SlicedTensor context(rows, 16), dq(rows, 16), dk(key_rows, 8), dv(key_rows, 8);
    kernels().attention(shape, dense(q), dense(k), dense(v), context.matrix(), keeps);
    if (!keeps.softmax.empty()) {
      const at::Tensor factors = as_tensor(kept, 90).view({2, 2, 70, 90}).to(at::kDouble) / 0.7;
      const at::Tensor hidden = at::ones({70, 90}, at::kBool).triu(21);
      oracle = ask_oracle(
          [&](const auto& in) {
            const at::Tensor scores =
                heads_apart(in[0], 2).matmul(heads_apart(in[1], 1).transpose(2, 3)) / std::sqrt(8.0);
            const at::Tensor p = at::softmax(scores.masked_fill(hidden, -INFINITY), -1) * factors;
            return p.matmul(heads_apart(in[2], 1)).transpose(1, 2).reshape({rows, 16});
          },
          {q, k, v}, d_context);
    }
    kernels().attention_input_grad(shape, dense(q), dense(k), dense(v), context.matrix(), keeps, dense(d_context),
                                   dq.matrix(), dk.matrix(), dv.matrix());
    EXPECT_LE(relative_error(context.values(), oracle.output), 3e-6);
    EXPECT_LE(relative_error(dq.values(), oracle.gradients[0]), 3e-6);
    EXPECT_LE(relative_error(dk.values(), oracle.gradients[1]), 3e-6);
    EXPECT_LE(relative_error(dv.values(), oracle.gradients[2]), 3e-6);
  }
  // The rows of sample 9's second head here are those of a rank that has that head and that sample alone.
  const std::vector<std::int64_t> one{9};
  AttentionShape alone = shape;
  alone.sequences = alone.heads = 1;
  alone.dropout.first_head = 3;
  alone.dropout.samples = one;
  std::vector<std::uint8_t> kept_alone(70 * 90, 9);
  at::Tensor softmax_alone = at::empty({70, 90}), dropped_alone = at::empty({70, 90});
  const at::Tensor its_queries = q.narrow(0, 70, 70).narrow(1, 8, 8).contiguous(),
                   its_keys = k.narrow(0, 90, 90).contiguous(), its_values = v.narrow(0, 90, 90).contiguous();
  const SlicedTensor context(70, 8);
  kernels().attention(alone, dense(its_queries), dense(its_keys), dense(its_values), context.matrix(),
                      {{}, dense(softmax_alone), kept_alone, dense(dropped_alone)});
  EXPECT_TRUE(as_tensor(kept_alone, 90).equal(as_tensor(kept, 90).narrow(0, 210, 70)));
}

}  // namespace
}  // namespace weft
