// K-FAC's kernels on a GPU against the processor's, which libtorch's linear algebra in double precision checks
// (curvature_test.cpp).
#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaKfac : public CudaTest {};

TEST_F(CudaKfac, CurvatureIsThatOfTheProcessor) {
  for (const Into into : {Into::overwrite, Into::add})
    compare([&](TestMemory& m, Kernels& k) {
      const Matrix sum = m.matrix32(40, 40, 2);
      k.curvature(m.matrix(72, 40, 1), 0.25, sum, into);
      return std::vector{sum};
    });
}

// Sizes below, at and above the columns that are eliminated at once; of fewer rows than columns, so that there is no
// inverse without damping. The processor's own inverses are of fp32: its test allows them 2e-4.
TEST_F(CudaKfac, InversesAreThoseOfTheProcessor) {
  const std::unique_ptr<Kernels> oracle = make_kernels();
  for (const std::int64_t size : {1, 5, 32, 33, 70, 200}) {
    SCOPED_TRACE(size);
    std::vector<std::vector<float>> averages, inverses;
    for (const bool on_device : {false, true}) {
      TestMemory m(on_device ? device_.get() : nullptr, ElementType::fp32, false);
      Kernels& k = on_device ? device_->kernels() : *oracle;
      const Matrix sum = m.matrix32(size, size, 1), average = m.matrix32(size, size, 2),
                   inverse = m.matrix32(size, size, 3);
      bool finite = false;
      for (std::uint64_t step = 0; step < 3; ++step) {
        k.curvature(m.matrix32((size + 1) / 2, size, 10 + step), 1, sum, Into::overwrite);
        k.invert_curvature(sum, step == 0 ? 0 : 0.9, 0.1, average, inverse, finite);
      }
      k.synchronize();
      EXPECT_TRUE(finite);
      averages.push_back(m.values(average));
      inverses.push_back(m.values(inverse));
    }
    EXPECT_LE(relative_error(averages[1], averages[0]), 1e-5);
    EXPECT_LE(relative_error(inverses[1], inverses[0]), 2e-4);
  }
}

// The product of a matrix and its inverse is the identity, to the rounding of fp32 times the matrix's condition (10).
TEST_F(CudaKfac, AMatrixTimesItsInverseIsTheIdentity) {
  constexpr std::int64_t kSize = 300;
  TestMemory m(device_.get(), ElementType::fp32, false);
  std::vector<float> numbers(kSize * kSize, 0.1F / kSize);
  for (std::int64_t i = 0; i < kSize; ++i)
    numbers[static_cast<std::size_t>(i * kSize + i)] += 1.0F + 0.01F * static_cast<float>(i % 7);
  const Matrix factor = m.given(numbers, kSize, kSize), average = m.matrix32(kSize, kSize, 1),
               inverse = m.matrix32(kSize, kSize, 2), product = m.matrix32(kSize, kSize, 3);
  bool finite = false;
  device_->kernels().invert_curvature(factor, 0, 0, average, inverse, finite);
  device_->kernels().linear(factor, inverse, {}, product);  // the inverse is symmetric
  device_->kernels().synchronize();
  EXPECT_TRUE(finite);
  std::vector<float> identity(kSize * kSize, 0.0F);
  for (std::int64_t i = 0; i < kSize; ++i) identity[static_cast<std::size_t>(i * kSize + i)] = 1;
  EXPECT_LE(relative_error(m.values(product), identity), 1e-5);
}

TEST_F(CudaKfac, SaysWhereThereIsNoInverse) {
  constexpr std::int64_t kSize = 40;
  TestMemory m(device_.get(), ElementType::fp32, false);
  for (const float wrong : {-1.0F, 0.0F, NAN}) {
    std::vector<float> numbers(kSize * kSize, 0.0F);
    for (std::int64_t i = 0; i < kSize; ++i) numbers[static_cast<std::size_t>(i * kSize + i)] = i == 35 ? wrong : 1.0F;
    bool finite = true;
    device_->kernels().invert_curvature(m.given(numbers, kSize, kSize), 0, 0, m.matrix32(kSize, kSize, 1),
                                        m.matrix32(kSize, kSize, 2), finite);
    device_->kernels().synchronize();
    EXPECT_FALSE(finite) << wrong;
  }
}

TEST_F(CudaKfac, DirectionsAreThoseOfTheProcessor) {
  for (const bool inverted : {false, true})
    compare([&](TestMemory& m, Kernels& k) {
      const LinearGradient gradient{m.matrix32(24, 40, 1), m.vector32(24, 2)};
      const LinearGradient direction{m.matrix32(24, 40, 3), m.vector32(24, 4)}, without_bias{m.matrix32(24, 40, 5), {}};
      const Matrix inputs = inverted ? m.matrix32(40, 40, 6) : Matrix{};
      const Matrix outputs = inverted ? m.matrix32(24, 24, 7) : Matrix{};
      k.precondition(gradient, inputs, outputs, direction);
      k.precondition({gradient.weight, {}}, inputs, outputs, without_bias);
      return std::vector{direction.weight, as_matrix(direction.bias), without_bias.weight};
    });
}

}  // namespace
}  // namespace weft
