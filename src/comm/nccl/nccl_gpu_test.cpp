// NCCL itself, between ranks that are processes (tools/gpu_ranks.sh).
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <thread>

#include "comm/nccl/test_nccl_calls.hpp"
#include "comm/nccl/test_nccl_session.hpp"

namespace weft {
namespace {

using nccl_calls::Case;
using nccl_calls::Lie;
using nccl_ranks::require;
using nccl_ranks::session;

class GpuMemory final : public nccl_calls::TestMemory {
 public:
  GpuMemory() = default;
  ~GpuMemory() override {
    for (void* const block : blocks_) (void)cudaFree(block);
    for (const auto& [queue, stream] : streams_) (void)cudaStreamDestroy(stream);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // From large blocks, as many small ones take cudaMalloc long.
  std::byte* allocate(std::size_t bytes) override {
    constexpr std::size_t kBlock = std::size_t{64} << 20, kAlignment = 256;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (left_ < bytes) {
      left_ = std::max(bytes, kBlock);
      void* block = nullptr;
      require(cudaMalloc(&block, left_));
      blocks_.push_back(block);
      next_ = static_cast<std::byte*>(block);
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) override {
    require(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
  }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) override {
    std::vector<std::byte> host(bytes);
    require(cudaMemcpy(host.data(), from, bytes, cudaMemcpyDeviceToHost));
    return host;
  }
  void* stream(std::int64_t queue) override {
    cudaStream_t& stream = streams_[queue];
    if (stream == nullptr) require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }
  void wait() override { require(cudaDeviceSynchronize()); }

 private:
  std::vector<void*> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::map<std::int64_t, cudaStream_t> streams_;
};

void check(const std::vector<Case>& cases) {
  GpuMemory memory;
  const std::unique_ptr<StreamCollectives> collectives = session().make();
  nccl_calls::check_cases(*collectives, memory, session().launch.rank, cases);
}

TEST(NcclOnGpus, AgreesWithTheDefinitionInEveryLayoutOfTheBuffers) {
  check(nccl_calls::all_cases(session().launch.ranks, {0, 1, 37, 480, 4099}));
}

TEST(NcclOnGpus, CarriesOutProgramsInEveryLayoutOfTheBuffers) {
  check(nccl_calls::program_cases(session().launch.ranks, {0, 37, 4099}));
}

TEST(NcclOnGpus, CarriesOutProgramsOnLargeBuffers) {
  std::vector<Case> cases = nccl_calls::program_cases(session().launch.ranks, {(1 << 16) + 3});
  std::erase_if(cases, [](const Case& of) { return of.lie == Lie::alike; });  // host memory holds all of them
  check(cases);
}

TEST(NcclOnGpus, AgreesWithTheDefinitionOnLargeBuffers) {
  constexpr std::int64_t kElements = (1 << 22) + 3;
  std::vector<std::int64_t> world(static_cast<std::size_t>(session().launch.ranks));
  std::iota(world.begin(), world.end(), 0);
  std::vector<Case> cases;
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const ElementType type : {ElementType::fp32, ElementType::bf16}) {
      for (const Lie lie : {Lie::together, Lie::unlike}) {
        cases.push_back({nccl_calls::call_of(kind, world, kElements, type, ReduceOp::sum), lie, false});
      }
    }
  }
  check(cases);
}

// Rank 0 starts what the others never do. Its stream waits, until it aborts.
TEST(NcclOnGpus, AbortEndsACollectiveThatAnotherRankNeverStarts) {
  std::vector<std::int64_t> world(static_cast<std::size_t>(session().launch.ranks));
  std::iota(world.begin(), world.end(), 0);
  GpuMemory memory;
  const std::unique_ptr<StreamCollectives> collectives = session().make();
  const PreparedCall call =
      nccl_calls::call_of(Collective::all_reduce, world, 1 << 20, ElementType::fp32, ReduceOp::sum);
  const Segment buffer{memory.allocate(4 << 20), 4 << 20};
  const std::size_t prepared = collectives->prepare(call, {&buffer, 1}, {&buffer, 1});
  collectives->connect();
  if (session().launch.rank == 0) {
    auto* const stream = static_cast<cudaStream_t>(memory.stream(0));
    collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
    std::thread([&] { collectives->abort(""); }).join();
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_THROW(collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, stream), RunFailed);
  }
  session().rendezvous.exchange("");
  collectives->abort("");
  collectives->abort("");
  EXPECT_EQ(collectives->failure(), "");
}

}  // namespace
}  // namespace weft
