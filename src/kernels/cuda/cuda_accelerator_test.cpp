#include <chrono>
#include <thread>

#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaAccelerator : public CudaTest {};

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TEST_F(CudaAccelerator, MemoryBeginsAsZeros) {
  std::byte* const memory = device_->allocate({1000});
  std::vector<std::byte> host(1000, std::byte{1});
  device_->copy_out(memory, host);
  EXPECT_EQ(host, std::vector<std::byte>(1000));
}

TEST_F(CudaAccelerator, WorkOfAnotherStreamWaitsForTheEvent) {
  constexpr std::int64_t kSize = 50'000'000;
  const StreamId first = device_->make_stream(StreamPriority::usual),
                 second = device_->make_stream(StreamPriority::high);
  const EventId filled = device_->make_event(), copied = device_->make_event();
  const Vector a{{device_->allocate({4 * kSize}), ElementType::fp32}, kSize};
  const Vector b{{device_->allocate({4 * kSize}), ElementType::fp32}, kSize};
  const std::int64_t before = now();
  device_->use(first);
  for (int i = 0; i < 20; ++i) device_->kernels().fill(a, static_cast<float>(i));
  device_->record(filled, first);
  device_->use(second);
  device_->wait(second, filled);
  device_->kernels().copy(Matrix::dense(a.data, 1, kSize), Matrix::dense(b.data, 1, kSize));
  device_->record(copied, second);
  std::vector<std::byte> last(4);
  device_->copy_out(b.slice(kSize - 1, kSize).data.address, last);
  float value = 0;
  std::memcpy(&value, last.data(), sizeof value);
  EXPECT_EQ(value, 19);
  ASSERT_TRUE(device_->is_over(filled) && device_->is_over(copied));
  const std::int64_t after = now();
  // 20 fills move 4 GB, which takes every device more than 100 microseconds.
  EXPECT_GT(device_->time_of(filled), before);
  EXPECT_GT(device_->time_of(copied), device_->time_of(filled));
  EXPECT_LT(device_->time_of(copied), after + 100'000);  // the two clocks agree to within so much
}

TEST_F(CudaAccelerator, ResultsAreDeliveredByNumber) {
  TestMemory memory(device_.get(), ElementType::fp32, false);
  const Vector good = memory.vector32(100, 1), bad = memory.given(std::vector<float>(100, NAN), 1, 100).row(0);
  const std::uint64_t begin = device_->results_asked_for();
  bool of_good = false, of_bad = true;
  device_->kernels().all_finite(good, of_good);
  device_->kernels().all_finite(bad, of_bad);
  ASSERT_EQ(device_->results_asked_for(), begin + 2);
  std::vector<float> waits = memory.values(as_matrix(good));  // waits for all work
  device_->deliver({begin + 1, begin + 2});
  EXPECT_FALSE(of_bad);
  EXPECT_FALSE(of_good);
  device_->deliver({begin, begin + 1});
  EXPECT_TRUE(of_good);
}

// Far more than the staging memory holds at once.
TEST_F(CudaAccelerator, StagedDataIsReadBeforeItsPlaceIsUsedAgain) {
  constexpr std::int64_t kTokens = 40'000, kCalls = 50;
  TestMemory memory(device_.get(), ElementType::fp32, false);
  const Matrix table = memory.matrix(64, 8, 1);
  const Matrix y =
      Matrix::dense(reinterpret_cast<float*>(device_->allocate({kCalls * kTokens * 8 * 4})), kCalls * kTokens, 8);
  for (std::int64_t call = 0; call < kCalls; ++call) {
    const std::vector<std::int64_t> tokens(static_cast<std::size_t>(kTokens), call);
    device_->kernels().embedding(tokens, table, 0, {}, y.row_slice(call * kTokens, (call + 1) * kTokens));
  }
  for (std::int64_t call = 0; call < kCalls; ++call)
    for (const std::int64_t row : {call * kTokens, (call + 1) * kTokens - 1})
      EXPECT_EQ(memory.values(y.row_slice(row, row + 1)), memory.values(table.row_slice(call, call + 1)));
}

TEST(CudaAccelerators, ANumberThatDoesNotExistIsAnError) {
  EXPECT_THROW(make_cuda_accelerator({.number = 1000}), Error);
}

TEST(CudaAccelerators, MorePartitionsThanThereCanBeAreAnError) {
  try {
    make_cuda_accelerator({.share = SmShare{0, 1000}});
    ADD_FAILURE() << "made";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("ranks are possible"), std::string::npos) << error.what();
  }
}

// Products of 512 x 512 ones on every partition of four at the same time: every element is 512.
TEST(CudaAccelerators, PartitionsOfOneGpuWorkSideBySide) {
  constexpr std::int64_t kSize = 512;
  std::vector<std::string> words(4);
  std::vector<std::vector<float>> found(4, std::vector<float>(kSize * kSize));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Accelerator> device = make_cuda_accelerator({.share = SmShare{rank, 4}});
      device->use(device->make_stream(StreamPriority::high));
      const auto matrix = [&] {
        auto* const memory = reinterpret_cast<float*>(device->allocate({kSize * kSize * 4}));
        device->kernels().fill({{reinterpret_cast<std::byte*>(memory), ElementType::fp32}, kSize * kSize}, 1);
        return Matrix::dense(memory, kSize, kSize);
      };
      const Matrix x = matrix(), weight = matrix(), y = matrix();
      for (int i = 0; i < 20; ++i) device->kernels().linear(x, weight, {}, y);
      device->copy_out(y.data.address, std::as_writable_bytes(std::span(found[static_cast<std::size_t>(rank)])));
      words[static_cast<std::size_t>(rank)] = device->in_words();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(found[static_cast<std::size_t>(rank)], std::vector<float>(kSize * kSize, 512.0F));
    EXPECT_NE(words[static_cast<std::size_t>(rank)].find(" of "), std::string::npos) << words[0];
    EXPECT_EQ(words[static_cast<std::size_t>(rank)], words[0]);
  }
}

}  // namespace
}  // namespace weft
