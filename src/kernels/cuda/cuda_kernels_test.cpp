#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaKernels : public CudaTest {};

// Sizes of one, odd ones, and ones that fill whole words.
const std::vector<std::pair<std::int64_t, std::int64_t>> kSizes = {{1, 1}, {5, 13}, {37, 29}, {64, 128}, {3, 5000}};

TEST_F(CudaKernels, LinearAddsItsBias) {
  for (const auto& [rows, columns] : kSizes)
    for (const Into into : {Into::overwrite, Into::add})
      compare([&](TestMemory& m, Kernels& k) {
        const Matrix y = m.matrix(rows, 24, 4), z = m.matrix(rows, 24, 5);
        k.linear(m.matrix(rows, columns, 1), m.matrix(24, columns, 2), m.vector(24, 3), y, into);
        k.linear(m.matrix(rows, columns, 1), m.matrix(24, columns, 2), {}, z, into);
        return std::vector{y, z};
      });
}

TEST_F(CudaKernels, LinearGradients) {
  for (const auto& [rows, columns] : kSizes)
    for (const Into into : {Into::overwrite, Into::add})
      compare([&](TestMemory& m, Kernels& k) {
        const Matrix dy = m.matrix(rows, 24, 1), dx = m.matrix(rows, columns, 2), dw = m.matrix(24, columns, 3);
        const Vector dbias = m.vector(24, 4);
        k.linear_input_grad(dy, m.matrix(24, columns, 5), dx, into);
        k.linear_weight_grad(m.matrix(rows, columns, 6), dy, dw, dbias, into);
        return std::vector{dx, dw, as_matrix(dbias)};
      });
}

// bf16 products may be summed in f32, as gradients of several microbatches are.
TEST_F(CudaKernels, WeightGradientsInFloatOfBf16) {
  compare([](TestMemory& m, Kernels& k) {
    const Matrix dw = m.matrix32(24, 40, 3);
    const Vector dbias = m.vector32(24, 4);
    k.linear_weight_grad(m.matrix(48, 40, 1), m.matrix(48, 24, 2), dw, dbias, Into::add);
    k.linear_weight_grad(m.matrix(0, 40, 1), m.matrix(0, 24, 2), dw, dbias, Into::add);
    return std::vector{dw, as_matrix(dbias)};
  });
}

TEST_F(CudaKernels, NoRowsMakeGradientsOfZero) {
  compare([](TestMemory& m, Kernels& k) {
    const Matrix dw = m.matrix(24, 40, 3);
    const Vector dbias = m.vector(24, 4);
    k.linear_weight_grad(m.matrix(1, 40, 1).row_slice(0, 0), m.matrix(1, 24, 2).row_slice(0, 0), dw, dbias,
                         Into::overwrite);
    return std::vector{dw, as_matrix(dbias)};
  });
}

TEST_F(CudaKernels, Norms) {
  for (const auto& [rows, columns] : kSizes)
    for (const bool centred : {false, true})
      compare([&](TestMemory& m, Kernels& k) {
        const NormWeights weights{m.vector(columns, 1), centred ? m.vector(columns, 2) : Vector{}};
        const Matrix x = m.matrix(rows, columns, 3), dy = m.matrix(rows, columns, 4);
        const Matrix y = m.matrix(rows, columns, 5), dx = m.matrix(rows, columns, 6),
                     through = m.matrix(rows, columns, 7);
        const Vector dgain = m.vector(columns, 8), dbias = centred ? m.vector(columns, 9) : Vector{};
        k.norm(x, weights, y);
        k.norm_input_grad(dy, x, weights, m.matrix(rows, columns, 10), dx);
        k.norm_input_grad(dy, x, weights, {}, through);
        k.norm_weight_grad(dy, x, weights, dgain, dbias, Into::add);
        // A single column is its own mean, or its own size: what gradients leave of it is rounding.
        if (columns == 1) return std::vector{y};
        std::vector<Matrix> results{y, dx, through, as_matrix(dgain)};
        if (centred) results.push_back(as_matrix(dbias));
        return results;
      });
}

TEST_F(CudaKernels, Elementwise) {
  for (const auto& [rows, columns] : kSizes)
    compare([&](TestMemory& m, Kernels& k) {
      std::vector<Matrix> results;
      const auto result = [&](std::int64_t width) { return results.emplace_back(m.matrix(rows, width, 90)); };
      const Matrix x = m.matrix(rows, columns, 1), dy = m.matrix(rows, columns, 2),
                   pairs = m.matrix(rows, 2 * columns, 3);
      k.gelu(x, result(columns));
      k.gelu_input_grad(dy, x, result(columns));
      k.swiglu(pairs, result(columns));
      k.swiglu_input_grad(dy, pairs, result(2 * columns));
      k.add(x, dy, result(columns));
      k.copy(x, result(columns));
      const Vector filled = m.vector(columns, 4);
      k.fill(filled, 1.5F);
      results.push_back(as_matrix(filled));
      return results;
    });
}

TEST_F(CudaKernels, DropoutDrawsTheSame) {
  for (const auto& [rows, columns] : kSizes)
    compare([&](TestMemory& m, Kernels& k) {
      std::vector<std::int64_t> numbers;
      for (std::int64_t r = 0; r < rows; ++r) numbers.push_back(7 * r + 3);
      const Matrix y = m.matrix(rows, columns, 2), z = m.matrix(rows, columns, 3), dx = m.matrix(rows, columns, 4);
      const KeptElements kept = m.bytes(rows * columns);
      const DropoutDraw draw{0.3, 12345, numbers};
      k.dropout(m.matrix(rows, columns, 1), draw, {}, kept, z);
      k.dropout(m.matrix(rows, columns, 1), draw, m.matrix(rows, columns, 5), kept, y);
      numbers.assign(numbers.size(), -1);  // staged already
      k.dropout_input_grad(m.matrix(rows, columns, 6), 0.3, kept, dx);
      return std::vector{y, z, dx};
    });
}

TEST_F(CudaKernels, EmbeddingsOfAPartOfTheVocabulary) {
  const std::vector<std::int64_t> tokens = {3, 9, 3, 0, 11, 3, 25, 10}, positions = {2, 0, 3, 5};
  for (const std::int64_t columns : {1, 13, 64, 600})
    for (const Into into : {Into::overwrite, Into::add})
      compare([&](TestMemory& m, Kernels& k) {
        const Matrix y = m.matrix(8, columns, 1), z = m.matrix(8, columns, 2), dy = m.matrix(8, columns, 3);
        const Matrix table = m.matrix(10, columns, 4), dtable = m.matrix(10, columns, 5), dp = m.matrix(6, columns, 6);
        k.embedding(tokens, table, 2, {m.matrix(6, columns, 7), positions}, y);
        k.embedding(tokens, table, 2, {}, z);
        k.embedding_weight_grad(tokens, dy, dtable, 2, into);
        k.positions_weight_grad(dy, {dp, positions}, into);
        return std::vector{y, z, dtable, dp};
      });
}

TEST_F(CudaKernels, CrossEntropyOfAllAndOfParts) {
  for (const std::int64_t columns : {12, 64, 5003}) {
    const std::vector<std::int64_t> targets = {1, 9, 0, 5, 10};
    std::vector<double> losses;
    compare(
        [&](TestMemory& m, Kernels& k) {
          const Matrix logits = m.matrix(5, columns, 1), p = m.matrix(5, columns, 2), q = m.matrix(5, columns, 3);
          const Matrix d = m.matrix(5, columns, 4);
          double loss = 0, of_parts = 0;
          k.cross_entropy(logits, targets, columns - 1, p, loss);
          const auto part = [&](std::uint64_t seed) {
            return LossPart{m.vector32(5, seed), m.vector32(5, seed + 1), m.vector32(5, seed + 2)};
          };
          const std::vector<LossPart> parts = {part(10), part(20)};
          const VocabularyPart first{0, 7}, rest{7, columns - 8};
          k.cross_entropy_part(logits.column_slice(0, 7), targets, first, parts[0]);
          k.cross_entropy_part(logits.column_slice(7, columns), targets, rest, parts[1]);
          k.cross_entropy_of_parts(logits.column_slice(0, 7), first, parts, q.column_slice(0, 7), of_parts);
          double again = 0;
          k.cross_entropy_of_parts(logits.column_slice(7, columns), rest, parts, q.column_slice(7, columns), again);
          k.cross_entropy_input_grad(p, targets, 0, 0.25, d);
          k.synchronize();
          EXPECT_NEAR(of_parts, loss, 1e-5 * std::abs(loss));
          EXPECT_EQ(again, of_parts);
          losses.push_back(loss);
          return std::vector{p, q, d, as_matrix(parts[0].largest), as_matrix(parts[1].sum), as_matrix(parts[0].target)};
        },
        2);
    for (std::size_t i = 0; i + 1 < losses.size(); i += 2) EXPECT_NEAR(losses[i + 1], losses[i], 1e-5 * losses[i]);
  }
}

TEST_F(CudaKernels, OptimizersWithClippedGradients) {
  for (const std::int64_t size : {1, 13, 4096, 100003})
    for (const std::int64_t step : {1, 3})
      compare(
          [&](TestMemory& m, Kernels& k) {
            const Vector gradient = m.vector(size, 1), norm = m.vector32(1, 2);
            const Vector weights = m.vector32(size, 3), first = m.vector32(size, 4), second = m.squares32(size, 5);
            const Vector other = m.vector32(size, 6), plain = m.vector32(size, 7), momentum = m.vector32(size, 8);
            bool finite = false, all = false;
            k.square_sum(std::vector{gradient, gradient.slice(0, size / 2)}, norm);
            k.adam({.weight_decay = 0.1}, step, {norm, 1.0}, {gradient, weights, first, second}, finite);
            k.sgd({.momentum = 0.9, .weight_decay = 0.1}, step, {}, {gradient, other, momentum}, finite);
            k.sgd({}, step, {norm, 1.0}, {gradient, plain, {}}, finite);
            k.all_finite(gradient, all);
            k.synchronize();
            EXPECT_TRUE(finite && all);
            return std::vector{as_matrix(norm),  as_matrix(weights),  as_matrix(first), as_matrix(second),
                               as_matrix(other), as_matrix(momentum), as_matrix(plain)};
          },
          0.01);
}

TEST_F(CudaKernels, MasterWeightsAreUpdatedAndRounded) {
  constexpr std::int64_t kSize = 1003;
  TestMemory memory(device_.get(), ElementType::bf16, false);
  const Vector gradient = memory.vector(kSize, 1), weights = memory.vector(kSize, 2),
               master = memory.vector32(kSize, 3), alone = memory.vector32(kSize, 3);
  bool finite = false;
  for (const Vector& master_of : {master, Vector{}}) {
    const UpdatedParameter parameter{gradient, master_of.empty() ? alone : weights, memory.vector32(kSize, 4),
                                     memory.squares32(kSize, 5), master_of};
    device_->kernels().adam({}, 2, {}, parameter, finite);
  }
  device_->kernels().synchronize();
  EXPECT_TRUE(finite);
  const std::vector<float> updated = memory.values(as_matrix(master)), rounded = memory.values(as_matrix(weights));
  EXPECT_EQ(updated, memory.values(as_matrix(alone)));
  for (std::size_t i = 0; i < updated.size(); ++i) EXPECT_EQ(rounded[i], bf16_of(updated[i]));
}

TEST_F(CudaKernels, GradientsThatAreNotFiniteChangeNothing) {
  TestMemory memory(device_.get(), ElementType::bf16, false);
  std::vector<float> numbers(1001, 1.0F);
  numbers[777] = INFINITY;
  const Vector gradient = memory.given(numbers, 1, 1001, false).row(0), weights = memory.vector32(1001, 1);
  const std::vector<float> before = memory.values(as_matrix(weights));
  bool finite = true, all = true;
  device_->kernels().adam({}, 1, {}, {gradient, weights, memory.vector32(1001, 2), memory.squares32(1001, 3)}, finite);
  device_->kernels().all_finite(gradient, all);
  device_->kernels().synchronize();
  EXPECT_FALSE(finite);
  EXPECT_FALSE(all);
  EXPECT_EQ(memory.values(as_matrix(weights)), before);
}

}  // namespace
}  // namespace weft
