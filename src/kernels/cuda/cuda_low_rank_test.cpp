// PowerSGD's factors on a GPU against the processor's (compress/low_rank.hpp), which have oracles of their own.
#include <array>

#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

struct FactoredCase {
  std::int64_t rows, columns, rank;
};
// Ranks below, at and above what one pass over a matrix makes; rows that are no whole words.
constexpr FactoredCase kCases[] = {{64, 256, 4}, {513, 100, 3}, {7, 2050, 1}, {300, 37, 9}, {1024, 3000, 8}};

class CudaLowRank : public CudaTest {
 protected:
  struct Results {
    Matrix left, right, gradient, errors;
    EncodedSquares squares;
    std::vector<Matrix> matrices() const { return {left, right, gradient, errors}; }
  };
  // The three steps, one after the other.
  static Results run(const FactoredCase& c, TestMemory& m, Kernels& k) {
    Results r{m.matrix32(c.rank, c.rows, 1),
              m.matrix32(c.rank, c.columns, 2),
              m.matrix32(c.rows, c.columns, 3),
              m.matrix32(c.rows, c.columns, 4),
              {}};
    k.left_factor(r.gradient, r.errors, r.right, r.left);
    k.make_orthonormal(r.left, 5);
    k.right_factor(r.gradient, r.errors, r.left, r.right);
    k.factor_product(r.left, r.right, 3, r.gradient, r.errors, r.squares);
    k.synchronize();
    return r;
  }
};

TEST_F(CudaLowRank, GivesTheNumbersOfTheProcessor) {
  const std::unique_ptr<Kernels> oracle = make_kernels();
  for (const FactoredCase& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << ", rank " << c.rank);
    TestMemory expected(nullptr, ElementType::fp32, false), actual(device_.get(), ElementType::fp32, false);
    const Results right = run(c, expected, *oracle), found = run(c, actual, device_->kernels());
    const std::vector<Matrix> of_right = right.matrices(), of_found = found.matrices();
    for (std::size_t i = 0; i < of_right.size(); ++i) {
      EXPECT_LE(relative_error(actual.values(of_found[i]), expected.values(of_right[i])), 1e-5) << "result " << i;
    }
    EXPECT_NEAR(found.squares.gradient, right.squares.gradient, 1e-5 * right.squares.gradient);
    EXPECT_NEAR(found.squares.error, right.squares.error, 1e-5 * right.squares.error);
  }
}

// Zeros, and a column that the first leaves nothing of: both are drawn anew, as the processor draws them.
TEST_F(CudaLowRank, DrawsColumnsThatAreEmptyAsTheProcessorDoes) {
  constexpr std::int64_t kRows = 200, kRank = 3;
  std::vector<float> numbers(kRank * kRows, 0.0F);
  for (std::size_t i = 0; i < kRows; ++i) numbers[i] = numbers[kRows + i] = static_cast<float>(i % 7) - 3;
  const std::unique_ptr<Kernels> oracle = make_kernels();
  TestMemory expected(nullptr, ElementType::fp32, false), actual(device_.get(), ElementType::fp32, false);
  const Matrix right = expected.given(numbers, kRank, kRows), found = actual.given(numbers, kRank, kRows);
  oracle->make_orthonormal(right, 77);
  device_->kernels().make_orthonormal(found, 77);
  EXPECT_LE(relative_error(actual.values(found), expected.values(right)), 1e-5);
}

// A recorded call draws, at every start, from the seed that it is given then.
TEST_F(CudaLowRank, ARecordingDrawsAnewAtEveryStart) {
  constexpr std::int64_t kRows = 100, kRank = 2;
  const std::vector<float> zeros(kRank * kRows, 0.0F);
  const std::unique_ptr<Kernels> oracle = make_kernels();
  TestMemory expected(nullptr, ElementType::fp32, false), actual(device_.get(), ElementType::fp32, false);
  const Matrix found = actual.given(zeros, kRank, kRows);
  const StreamId stream = device_->make_stream(StreamPriority::usual),
                 starts = device_->make_stream(StreamPriority::usual);
  device_->use(stream);
  CallRecorder& recorder = *device_->recorder();
  recorder.begin(std::array{stream});
  device_->kernels().fill({found.data, kRank * kRows}, 0);
  device_->kernels().make_orthonormal(found, 1);
  const RecordingId recording = recorder.end();
  for (const std::uint64_t seed : {2U, 3U}) {
    recorder.renew_host_data(recording);
    device_->kernels().make_orthonormal(found, seed);
    recorder.start(recording, starts);
    const Matrix right = expected.given(zeros, kRank, kRows);
    oracle->make_orthonormal(right, seed);
    EXPECT_LE(relative_error(actual.values(found), expected.values(right)), 1e-5) << "seed " << seed;
  }
  recorder.forget(recording);
}

}  // namespace
}  // namespace weft
