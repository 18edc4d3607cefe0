#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaAttention : public CudaTest {
 protected:
  struct Case {
    AttentionShape shape;
    std::int64_t shared_columns = 0;
    bool keeps_softmax = false;
    Into into_keys = Into::overwrite;
  };
  static AttentionShape shape_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size,
                                 std::int64_t length) {
    AttentionShape shape;
    shape.sequences = 2;
    shape.heads = heads;
    shape.kv_heads = kv_heads;
    shape.head_size = head_size;
    shape.queries = shape.keys = length;
    return shape;
  }

  // Rotated queries and keys, the softmax, gradients of scores and the context, from which the fused kernels take the
  // sums over the softmax's gradient, are rounded to bf16 on the way, and each sums up over both factors of a product.
  void compare_attention(const Case& c) {
    compare([&](TestMemory& m, Kernels& k) { return run(c, m, k); }, 8);
  }

 private:
  static std::vector<Matrix> run(const Case& c, TestMemory& m, Kernels& k) {
    const AttentionShape& s = c.shape;
    const std::int64_t rows = s.sequences * s.queries, key_rows = s.sequences * s.keys, value = s.value_columns();
    const std::int64_t own = s.head_size - c.shared_columns;
    const std::int64_t key_columns = (s.kv_heads - 1) * s.key_step(own) + own,
                       value_columns = (s.kv_heads - 1) * s.value_step() + value;
    const Matrix q = m.matrix(rows, s.heads * s.head_size, 1), key = m.matrix(key_rows, key_columns, 2);
    const Matrix v = m.matrix(key_rows, value_columns, 3), context = m.matrix(rows, s.heads * value, 4);
    const Matrix shared = c.shared_columns > 0 ? m.matrix(key_rows, c.shared_columns, 5) : Matrix{};
    const Matrix d_shared = c.shared_columns > 0 ? m.matrix(key_rows, c.shared_columns, 6) : Matrix{};
    AttentionSaved saved;
    const std::int64_t softmax_rows = rows * s.heads;
    if (c.keeps_softmax) {
      saved.softmax = m.matrix(softmax_rows, s.keys, 7);
      if (s.dropout.rate > 0) {
        saved.kept = m.bytes(softmax_rows * s.keys);
        saved.dropped = m.matrix(softmax_rows, s.keys, 8);
      }
    } else {
      saved.log_sums = m.vector32(softmax_rows, 9);
    }
    k.attention(s, q, key, v, context, saved, shared);
    const Matrix dq = m.matrix(rows, q.columns, 10), dk = m.matrix(key_rows, key_columns, 11),
                 dv = m.matrix(key_rows, value_columns, 12), d_context = m.matrix(rows, s.heads * value, 13);
    k.attention_input_grad(s, q, key, v, context, saved, d_context, dq, dk, dv, c.into_keys, shared, d_shared);
    if (s.keys == 1) return {context, dv};  // a softmax of one key has no gradient but rounding
    std::vector<Matrix> results{context, dq, dk, dv};
    if (c.shared_columns > 0) results.push_back(d_shared);
    if (!saved.log_sums.empty()) results.push_back(as_matrix(saved.log_sums));
    return results;
  }
};

TEST_F(CudaAttention, OfOddShapes) {
  compare_attention({shape_of(1, 1, 1, 1)});
  compare_attention({shape_of(3, 3, 5, 7)});
  compare_attention({shape_of(2, 2, 16, 70)});
}

TEST_F(CudaAttention, OfShapesThatFusedKernelsTake) {
  for (const std::int64_t length : {1, 33, 128, 256, 300})
    for (const std::int64_t head_size : {64, 128}) compare_attention({shape_of(2, 2, head_size, length)});
}

TEST_F(CudaAttention, OfSharedKeyHeads) {
  for (const std::int64_t head_size : {6, 64}) {
    compare_attention({shape_of(6, 2, head_size, 40)});
    compare_attention({shape_of(4, 1, head_size, 300)});
  }
}

TEST_F(CudaAttention, WithRotaryPositions) {
  for (const std::int64_t head_size : {6, 64}) {
    AttentionShape shape = shape_of(4, 2, head_size, 40);
    shape.rotary_base = 10000;
    compare_attention({shape});
    compare_attention({shape, 0, false, Into::add});
  }
}

// As with context parallelism: keys behind the last query have no gradient, or keep what they have.
TEST_F(CudaAttention, OfQueriesInTheMiddle) {
  for (const std::int64_t head_size : {6, 64})
    for (const double base : {0.0, 10000.0})
      for (const Into into : {Into::overwrite, Into::add}) {
        AttentionShape shape = shape_of(2, 2, head_size, 40);
        shape.queries = 12;
        shape.first_position = 20;
        shape.rotary_base = base;
        compare_attention({shape, 0, false, into});
        shape.first_position = 36;  // the last queries stand behind the last key
        compare_attention({shape, 0, false, into});
      }
}

TEST_F(CudaAttention, WithDropoutOfTheSoftmax) {
  const std::vector<std::int64_t> samples = {3, 8};
  for (const bool keeps : {false, true}) {
    AttentionShape shape = shape_of(2, 2, 16, 40);
    shape.dropout = {0.2, 99, samples, 1, 4, 40};
    compare_attention({shape, 0, keeps});
  }
}

TEST_F(CudaAttention, WithASavedSoftmax) {
  compare_attention({shape_of(2, 1, 16, 40), 0, true});
}

TEST_F(CudaAttention, WithALatentKeyThatHeadsShare) {
  AttentionShape shape = shape_of(4, 4, 24, 40);
  shape.rotary_base = 10000;
  shape.value_size = 16;
  shape.key_pitch = shape.value_pitch = 40;
  for (const Into into : {Into::overwrite, Into::add}) compare_attention({shape, 8, false, into});
}

}  // namespace
}  // namespace weft
