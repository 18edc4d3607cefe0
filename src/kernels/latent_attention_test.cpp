// Attention whose keys end in columns that all heads share, and whose values have a size of their own (multi-head
// latent attention), against autograd in double precision.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 3e-6;

struct LatentCase {
  std::int64_t sequences, heads, nope, rope, value, queries, keys, first;
  double base;
};

// [sequence, head, token, column], pairs of halves turned by the position.
at::Tensor turned(const at::Tensor& x, double base, std::int64_t first) {
  if (base == 0) return x;
  const std::int64_t size = x.size(3);
  const at::Tensor frequency = at::pow(base, -at::arange(0, size, 2, at::kDouble) / size);
  const at::Tensor angle = at::outer(at::arange(first, first + x.size(2), at::kDouble), frequency);
  const auto halves = x.chunk(2, 3);
  return at::cat({halves[0] * angle.cos() - halves[1] * angle.sin(), halves[1] * angle.cos() + halves[0] * angle.sin()},
                 3);
}

at::Tensor exact(const LatentCase& c, const std::vector<at::Tensor>& in) {
  const at::Tensor q = in[0].view({c.sequences, c.queries, c.heads, c.nope + c.rope}).transpose(1, 2);
  const at::Tensor kv = in[1].view({c.sequences, c.keys, c.heads, c.nope + c.value}).transpose(1, 2);
  const at::Tensor shared = in[2].view({c.sequences, c.keys, 1, c.rope}).transpose(1, 2);
  const at::Tensor queries = at::cat({q.narrow(3, 0, c.nope), turned(q.narrow(3, c.nope, c.rope), c.base, c.first)}, 3);
  const at::Tensor keys =
      at::cat({kv.narrow(3, 0, c.nope), turned(shared, c.base, 0).expand({-1, c.heads, -1, -1})}, 3);
  const at::Tensor hidden = at::ones({c.queries, c.keys}, at::kBool).triu(c.first + 1);
  const at::Tensor scores = queries.matmul(keys.transpose(2, 3)) / std::sqrt(static_cast<double>(c.nope + c.rope));
  const at::Tensor p = at::softmax(scores.masked_fill(hidden, -INFINITY), -1);
  return p.matmul(kv.narrow(3, c.nope, c.value)).transpose(1, 2).reshape({c.sequences * c.queries, c.heads * c.value});
}

TEST(LatentAttention, ForwardAndGradients) {
  const std::vector<LatentCase> cases{{1, 1, 4, 2, 3, 5, 5, 0, 10000},
                                      {2, 3, 6, 4, 5, 70, 70, 0, 100},
                                      {2, 2, 8, 2, 12, 65, 130, 40, 10000},
                                      {1, 2, 3, 6, 4, 9, 30, 7, 0}};
  for (const LatentCase& c : cases) {
    for (const bool keeps_softmax : {false, true}) {
      for (const Into into : {Into::overwrite, Into::add}) {
        const std::int64_t rows = c.sequences * c.queries, key_rows = c.sequences * c.keys, size = c.nope + c.rope;
        const std::int64_t pitch = c.nope + c.value, softmax_rows = c.sequences * c.heads * c.queries;
        AttentionShape shape{.sequences = c.sequences, .heads = c.heads, .kv_heads = c.heads, .head_size = size};
        shape.queries = c.queries;
        shape.keys = c.keys;
        shape.first_position = c.first;
        shape.rotary_base = c.base;
        shape.value_size = c.value;
        shape.key_pitch = shape.value_pitch = pitch;
        const at::Tensor q = random_tensor({rows, c.heads * size}, 1),
                         kv = random_tensor({key_rows, c.heads * pitch}, 2),
                         shared = random_tensor({key_rows, c.rope}, 3),
                         dy = random_tensor({rows, c.heads * c.value}, 4),
                         kv_before = random_tensor({key_rows, c.heads * pitch}, 5),
                         shared_before = random_tensor({key_rows, c.rope}, 6);
        const SlicedTensor of_q(q), of_kv(kv), of_shared(shared), of_dy(dy), context(rows, c.heads * c.value),
            dq(rows, c.heads * size), d_kv(kv_before), d_shared(shared_before), softmax(softmax_rows, c.keys);
        at::Tensor log_sums = at::empty({softmax_rows});
        const AttentionSaved saved{keeps_softmax ? Vector{} : vector_of(log_sums),
                                   keeps_softmax ? softmax.matrix() : Matrix{}};
        const auto values = [&](const Matrix& x) { return x.column_slice(c.nope, x.columns); };
        kernels().attention(shape, of_q.matrix(), of_kv.matrix(), values(of_kv.matrix()), context.matrix(), saved,
                            of_shared.matrix());
        kernels().attention_input_grad(shape, of_q.matrix(), of_kv.matrix(), values(of_kv.matrix()), context.matrix(),
                                       saved, of_dy.matrix(), dq.matrix(), d_kv.matrix(), values(d_kv.matrix()), into,
                                       of_shared.matrix(), d_shared.matrix());
        const Oracle oracle = ask_oracle([&](const auto& in) { return exact(c, in); }, {q, kv, shared}, dy);
        const double before = into == Into::add ? 1 : 0;
        EXPECT_LE(relative_error(context.values(), oracle.output), kTolerance);
        EXPECT_LE(relative_error(dq.values(), oracle.gradients[0]), kTolerance);
        EXPECT_LE(relative_error(d_kv.values(), oracle.gradients[1] + before * kv_before), kTolerance);
        EXPECT_LE(relative_error(d_shared.values(), oracle.gradients[2] + before * shared_before), kTolerance);
        EXPECT_TRUE(context.surroundings_intact() && dq.surroundings_intact() && d_kv.surroundings_intact() &&
                    d_shared.surroundings_intact());
      }
    }
  }
}

}  // namespace
}  // namespace weft
