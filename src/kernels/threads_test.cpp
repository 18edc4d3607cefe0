#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "kernels/kernels.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {
namespace {

TEST(Kernels, AreThereAndSayWhatTheyAre) {
  EXPECT_TRUE(kernels_available()) << kernels_in_words();
  EXPECT_EQ(kernels_in_words().find("libtorch "), 0U);
}

// A layer's worth of kernels, large enough for several threads.
std::vector<at::Tensor> results_of_a_layer(int threads) {
  const std::unique_ptr<Kernels> kernels = make_kernels({.threads = threads});
  constexpr std::int64_t kTokens = 160, kWidth = 96;
  const AttentionShape shape{
      .sequences = 2, .heads = 6, .kv_heads = 2, .head_size = 16, .queries = 80, .keys = 80, .rotary_base = 1000};
  const at::Tensor x = random_tensor({kTokens, kWidth}, 1), w = random_tensor({4 * kWidth, kWidth}, 2),
                   bias = random_tensor({4 * kWidth}, 3), gain = random_tensor({kWidth}, 4);
  const auto matrix = [](const at::Tensor& t) { return Matrix::dense(t.data_ptr<float>(), t.size(0), t.size(1)); };
  const at::Tensor wide = at::empty({kTokens, 4 * kWidth}), activated = at::empty_like(wide), dw = at::empty_like(w),
                   dbias = at::empty_like(bias), dgain = at::empty_like(gain), context = at::empty_like(x),
                   log_sums = at::empty({960}), dq = at::empty_like(x), dkv = at::empty({kTokens, 64});
  kernels->linear(matrix(x), matrix(w), vector_of(bias), matrix(wide));
  kernels->gelu(matrix(wide), matrix(activated));
  kernels->linear_weight_grad(matrix(x), matrix(activated), matrix(dw), vector_of(dbias), Into::overwrite);
  kernels->norm_weight_grad(matrix(x), matrix(x), {vector_of(gain), {}, 1e-5}, vector_of(dgain), {}, Into::overwrite);
  const Matrix kv = matrix(wide), d_kv = matrix(dkv);
  const AttentionSaved saved{vector_of(log_sums), {}};
  kernels->attention(shape, matrix(x), kv.column_slice(0, 32), kv.column_slice(32, 64), matrix(context), saved);
  kernels->attention_input_grad(shape, matrix(x), kv.column_slice(0, 32), kv.column_slice(32, 64), matrix(context),
                                saved, matrix(x), matrix(dq), d_kv.column_slice(0, 32), d_kv.column_slice(32, 64));
  const at::Tensor norm = at::empty({1});
  const Vector squared = vector_of(dw);
  kernels->square_sum({&squared, 1}, vector_of(norm));
  kernels->synchronize();
  return {wide, activated, dw, dbias, dgain, context, log_sums, dq, dkv, norm};
}

TEST(Kernels, GiveTheSameBitsWhenSeveralThreadsCallThemAtOnce) {
  const std::vector<at::Tensor> alone = results_of_a_layer(1);
  std::vector<std::vector<at::Tensor>> together(3);
  std::vector<std::thread> ranks;
  for (std::vector<at::Tensor>& results : together)
    ranks.emplace_back([&results] {
      for (int round = 0; round < 3; ++round) results = results_of_a_layer(1);
    });
  for (std::thread& rank : ranks) rank.join();
  for (const std::vector<at::Tensor>& results : together)
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(results[i].equal(alone[i])) << i;
}

TEST(Kernels, GiveTheSameResultsWithSeveralThreadsInside) {
  const std::vector<at::Tensor> alone = results_of_a_layer(1), shared = results_of_a_layer(2);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_LE(relative_error(shared[i], alone[i]), 3e-6) << i;
}

}  // namespace
}  // namespace weft
