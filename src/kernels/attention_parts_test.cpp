// Sequences whose queries come in several calls, as those of context-parallel ranks do, against one call with all.
#include <gtest/gtest.h>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

constexpr double kTolerance = 3e-6;

struct Outcome {
  at::Tensor context, dq, dk, dv;
};

struct AttentionCase {
  AttentionShape whole;
  std::vector<std::vector<std::int64_t>> ranks;  // which of the equal parts of a sequence each has, in their order
  bool keeps_softmax = false;

  std::int64_t parts() const {
    std::size_t sum = 0;
    for (const auto& rank : ranks) sum += rank.size();
    return static_cast<std::int64_t>(sum);
  }
};

class AttentionParts : public testing::TestWithParam<AttentionCase> {
 protected:
  const AttentionCase& c = GetParam();
  std::int64_t sequences = c.whole.sequences, tokens = c.whole.queries, length = tokens / c.parts();
  std::int64_t query_columns = c.whole.heads * c.whole.head_size, key_columns = c.whole.kv_heads * c.whole.head_size;
  // [sequence, token, column], so that a part of every sequence is a slice.
  at::Tensor q = random_tensor({sequences, tokens, query_columns}, 1),
             k = random_tensor({sequences, tokens, key_columns}, 2),
             v = random_tensor({sequences, tokens, key_columns}, 3),
             d_context = random_tensor({sequences, tokens, query_columns}, 4);

  static at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(2)}); }

  // One call with the queries of every sequence from `first` on; dk and dv go to (or are added to) what is given.
  Outcome call(std::int64_t first, std::int64_t count, const SlicedTensor& dk, const SlicedTensor& dv,
               Into into) const {
    AttentionShape shape = c.whole;
    shape.queries = count;
    shape.first_position = first;
    const SlicedTensor of_q(rows(q.narrow(1, first, count))), of_k(rows(k)), of_v(rows(v)),
        of_d(rows(d_context.narrow(1, first, count)));
    const SlicedTensor context(sequences * count, query_columns), dq(sequences * count, query_columns);
    const SlicedTensor softmax(sequences * shape.heads * count, tokens);
    const at::Tensor log_sums = at::empty({sequences * shape.heads * count});
    const AttentionSaved saved{c.keeps_softmax ? Vector{} : vector_of(log_sums),
                               c.keeps_softmax ? softmax.matrix() : Matrix{}};
    kernels().attention(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(), saved);
    kernels().attention_input_grad(shape, of_q.matrix(), of_k.matrix(), of_v.matrix(), context.matrix(), saved,
                                   of_d.matrix(), dq.matrix(), dk.matrix(), dv.matrix(), into);
    EXPECT_TRUE(dq.surroundings_intact() && dk.surroundings_intact() && dv.surroundings_intact());
    const auto apart = [&](const SlicedTensor& x) { return x.values().view({sequences, -1, x.matrix().columns}); };
    return {apart(context), apart(dq), apart(dk), apart(dv)};
  }
  Outcome all_at_once() const {
    const SlicedTensor dk(sequences * tokens, key_columns), dv(sequences * tokens, key_columns);
    return call(0, tokens, dk, dv, Into::overwrite);
  }
};

TEST_P(AttentionParts, GiveTheContextAndGradientsOfTheWhole) {
  const Outcome whole = all_at_once();
  at::Tensor dk_sum = at::zeros_like(whole.dk), dv_sum = at::zeros_like(whole.dv);
  for (const std::vector<std::int64_t>& parts : c.ranks) {
    const SlicedTensor dk(sequences * tokens, key_columns), dv(sequences * tokens, key_columns);
    Outcome of_rank;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t first = parts[i] * length;
      of_rank = call(first, length, dk, dv, i == 0 ? Into::overwrite : Into::add);
      EXPECT_LE(relative_error(of_rank.context, whole.context.narrow(1, first, length)), kTolerance);
      EXPECT_LE(relative_error(of_rank.dq, whole.dq.narrow(1, first, length)), kTolerance);
    }
    dk_sum += of_rank.dk;
    dv_sum += of_rank.dv;
  }
  EXPECT_LE(relative_error(dk_sum, whole.dk), kTolerance);
  EXPECT_LE(relative_error(dv_sum, whole.dv), kTolerance);
}

TEST_P(AttentionParts, AddToTheGradientsOfKeysThatAreThere) {
  const Outcome whole = all_at_once();
  const at::Tensor before_k = random_tensor(k.sizes(), 5), before_v = random_tensor(v.sizes(), 6);
  const SlicedTensor dk(rows(before_k)), dv(rows(before_v));
  Outcome sums;
  for (const std::vector<std::int64_t>& parts : c.ranks)
    for (const std::int64_t part : parts) sums = call(part * length, length, dk, dv, Into::add);
  EXPECT_LE(relative_error(sums.dk, before_k + whole.dk), kTolerance);
  EXPECT_LE(relative_error(sums.dv, before_v + whole.dv), kTolerance);
}

// Keys behind the last query get no gradient: zero, or what was there.
TEST_P(AttentionParts, LeaveTheKeysBehindTheirLastQuery) {
  const std::int64_t count = tokens / 3, behind = tokens - count;
  const SlicedTensor dk(sequences * tokens, key_columns), dv(sequences * tokens, key_columns);
  const Outcome fresh = call(0, count, dk, dv, Into::overwrite);
  EXPECT_TRUE(fresh.dk.narrow(1, count, behind).eq(0).all().item<bool>());
  EXPECT_TRUE(fresh.dv.narrow(1, count, behind).eq(0).all().item<bool>());
  const SlicedTensor more_dk(rows(k)), more_dv(rows(v));
  const Outcome added = call(0, count, more_dk, more_dv, Into::add);
  EXPECT_TRUE(added.dk.narrow(1, count, behind).equal(k.narrow(1, count, behind)));
  EXPECT_TRUE(added.dv.narrow(1, count, behind).equal(v.narrow(1, count, behind)));
}

AttentionShape shape_of(std::int64_t sequences, std::int64_t heads, std::int64_t kv_heads, std::int64_t tokens,
                        double rotary_base) {
  return {.sequences = sequences,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_size = 8,
          .queries = tokens,
          .keys = tokens,
          .rotary_base = rotary_base};
}

std::vector<AttentionCase> attention_cases() {
  const std::vector<std::vector<std::int64_t>> zigzag{{0, 3}, {1, 2}}, backwards{{2, 0}, {1}}, one{{0}};
  std::vector<AttentionCase> cases;
  for (const double base : {0.0, 1000.0})
    for (const bool keeps_softmax : {false, true}) {
      cases.push_back({shape_of(2, 2, 2, 12, base), zigzag, keeps_softmax});
      cases.push_back({shape_of(2, 6, 2, 20, base), zigzag, keeps_softmax});
      cases.push_back({shape_of(1, 4, 1, 4 * 70, base), zigzag, keeps_softmax});  // two blocks of queries each
      cases.push_back({shape_of(2, 4, 2, 9, base), backwards, keeps_softmax});
      cases.push_back({shape_of(1, 2, 1, 130, base), one, keeps_softmax});
    }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, AttentionParts, testing::ValuesIn(attention_cases()));

}  // namespace
}  // namespace weft
