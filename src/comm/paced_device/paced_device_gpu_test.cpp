// The kernels themselves: ranks are threads of this process, each with streams of its own on one GPU.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <thread>

#include "comm/nccl/test_nccl_calls.hpp"
#include "comm/paced_device/modelled_time.hpp"
#include "comm/paced_device/test_paced_ranks.hpp"
#include "comm/tcp/test_threads.hpp"

namespace weft {
namespace {

using nccl_calls::Case;
using paced::PacedRanks;

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

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
  // In a stream of this rank: others may wait in theirs for what this one starts next.
  void write(std::byte* to, const std::vector<std::byte>& bytes) override {
    require(cudaMemcpyAsync(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, own_stream(kCopies)));
    require(cudaStreamSynchronize(own_stream(kCopies)));
  }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) override {
    std::vector<std::byte> host(bytes);
    require(cudaMemcpyAsync(host.data(), from, bytes, cudaMemcpyDeviceToHost, own_stream(kCopies)));
    require(cudaStreamSynchronize(own_stream(kCopies)));
    return host;
  }
  void* stream(std::int64_t queue) override { return own_stream(queue); }
  void wait() override {
    for (const auto& [queue, stream] : streams_) require(cudaStreamSynchronize(stream));
  }
  // Before anybody waits: to make one may take as long as whatever runs.
  void make_streams() {
    for (const std::int64_t queue : {std::int64_t{0}, std::int64_t{1}, kCopies}) own_stream(queue);
  }

 private:
  static constexpr std::int64_t kCopies = -1;
  cudaStream_t own_stream(std::int64_t queue) {
    cudaStream_t& stream = streams_[queue];
    if (stream == nullptr) require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
  }

  std::vector<void*> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::map<std::int64_t, cudaStream_t> streams_;
};

using Body = std::function<void(std::int64_t rank, StreamCollectives& collectives, GpuMemory& memory)>;

// Nobody frees anything before all are done: that would wait for whatever runs.
void on_gpu_ranks(PacedRanks& ranks, const Body& body) {
  tcp::expect_no_errors(tcp::run_threads(ranks.cluster().device_count(), [&](std::int64_t rank) {
    require(cudaSetDevice(0));
    GpuMemory memory;
    memory.make_streams();
    const std::unique_ptr<StreamCollectives> collectives =
        make_paced_device_collectives(ranks.options(rank), ranks.exchange(rank));
    body(rank, *collectives, memory);
    ranks.exchange(rank)("");
  }));
}

// So many at a time that streams have room for all of them: a host that waits for room might keep the others waiting.
void check(const std::string& cluster, std::span<const Case> cases) {
  constexpr std::size_t kAtOnce = 64;
  while (!cases.empty()) {
    const std::span<const Case> now = cases.first(std::min(kAtOnce, cases.size()));
    cases = cases.subspan(now.size());
    PacedRanks ranks(cluster);
    on_gpu_ranks(ranks, [&](std::int64_t rank, StreamCollectives& collectives, GpuMemory& memory) {
      nccl_calls::check_cases(collectives, memory, rank, {now.begin(), now.end()});
    });
  }
}

std::vector<std::int64_t> first_ranks(std::int64_t count) {
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST(PacedDeviceOnGpu, AgreesWithTheDefinitionInEveryLayoutOfTheBuffers) {
  for (const std::int64_t ranks : {2, 3, 4}) {
    check(fmt::format("gpu:{},link=400GB/s", ranks), nccl_calls::all_cases(ranks, {0, 1, 37, 480, 4099}));
  }
}

TEST(PacedDeviceOnGpu, AgreesWithTheDefinitionOnLargeBuffers) {
  constexpr std::int64_t kElements = (1 << 22) + 3;
  std::vector<Case> cases;
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
    for (const ElementType type : {ElementType::fp32, ElementType::bf16}) {
      for (const nccl_calls::Lie lie : {nccl_calls::Lie::together, nccl_calls::Lie::unlike}) {
        cases.push_back({nccl_calls::call_of(kind, first_ranks(4), kElements, type, ReduceOp::sum), lie, false});
      }
    }
  }
  check("gpu:4,link=400GB/s", cases);
}

// One call on one buffer, started so often in a row; returns the time of each by the events of rank 0.
double milliseconds_of(const std::string& cluster, const PreparedCall& call, std::int64_t queues = 1) {
  constexpr int kTimes = 10;
  PacedRanks ranks(cluster);
  double milliseconds = 0;
  on_gpu_ranks(ranks, [&](std::int64_t rank, StreamCollectives& collectives, GpuMemory& memory) {
    std::vector<std::size_t> prepared;
    std::vector<Segment> buffers;
    for (std::int64_t queue = 0; queue < queues; ++queue) {
      const std::int64_t bytes = input_elements(call.spec, call.sizes, 0) * size_of(call.type).value;
      buffers.push_back({memory.allocate(static_cast<std::size_t>(bytes)), bytes});
      PreparedCall own = call;
      own.queue = queue;
      prepared.push_back(collectives.prepare(own, {&buffers.back(), 1}, {&buffers.back(), 1}));
    }
    collectives.connect();
    cudaEvent_t begin = nullptr, end = nullptr;
    require(cudaEventCreate(&begin));
    require(cudaEventCreate(&end));
    ranks.exchange(rank)("");
    const auto start_all = [&] {
      for (std::size_t q = 0; q < prepared.size(); ++q) {
        const Segment& buffer = buffers[q];
        collectives.start(prepared[q], {&buffer, 1}, {&buffer, 1}, memory.stream(static_cast<std::int64_t>(q)));
      }
    };
    start_all();  // the events stand behind a call, which all ranks end together
    const auto first = static_cast<cudaStream_t>(memory.stream(0));
    require(cudaEventRecord(begin, first));
    for (int i = 0; i < kTimes; ++i) start_all();
    require(cudaEventRecord(end, first));
    memory.wait();
    EXPECT_EQ(collectives.failure(), "");
    float elapsed = 0;
    require(cudaEventElapsedTime(&elapsed, begin, end));
    if (rank == 0) milliseconds = static_cast<double>(elapsed) / kTimes;
  });
  return milliseconds;
}

PreparedCall all_reduce_of(std::int64_t ranks, std::int64_t bytes) {
  return nccl_calls::call_of(Collective::all_reduce, first_ranks(ranks), bytes / 4, ElementType::fp32, ReduceOp::sum);
}

// The kernels meet and leave in a few microseconds; launches of a stream follow each other as fast.
TEST(PacedDeviceOnGpu, TakesTheModelledTime) {
  for (const char* link : {"2GB/s", "50GB/s", "100GB/s"}) {
    const std::string cluster = fmt::format("gpu:4,link={}", link);
    for (const std::int64_t bytes : {std::int64_t{1} << 16, std::int64_t{1} << 26}) {
      const ModelledTime model = modelled_time(Cluster(parse_cluster(cluster)), all_reduce_of(4, bytes));
      const double expected = static_cast<double>((model.latency + model.moving).value) * 1e-6;
      const double measured = milliseconds_of(cluster, all_reduce_of(4, bytes));
      std::printf("%s, %ld bytes: modelled %.4f ms, measured %.4f ms\n", cluster.c_str(), static_cast<long>(bytes),
                  expected, measured);
      EXPECT_GT(measured, expected - 0.002) << cluster << ", " << bytes;
      EXPECT_LT(measured, 1.02 * expected + 0.03) << cluster << ", " << bytes;
    }
  }
}

TEST(PacedDeviceOnGpu, CollectivesOfTwoQueuesShareTheLinks) {
  const PreparedCall call = all_reduce_of(4, std::int64_t{1} << 26);
  const double alone = milliseconds_of("gpu:4,link=20GB/s", call);
  const double together = milliseconds_of("gpu:4,link=20GB/s", call, 2);
  std::printf("alone %.3f ms, two at a time %.3f ms\n", alone, together);
  EXPECT_NEAR(together, 2 * alone, 0.1 * alone);
}

// How long the copies take by themselves, for whoever asks which links can be emulated.
TEST(PacedDeviceOnGpu, SaysHowFastTheKernelsAre) {
  for (const char* cluster : {"gpu:4,link=50GB/s", "gpu:4,link=5000GB/s", "gpu:2,link=5000GB/s"}) {
    const Cluster of(parse_cluster(cluster));
    const PreparedCall call = all_reduce_of(of.device_count(), std::int64_t{1} << 28);
    const double milliseconds = milliseconds_of(cluster, call);
    const auto n = static_cast<double>(of.device_count());
    std::printf("%s, %d thread blocks: all_reduce of 256 MiB in %.3f ms, %.0f GB/s on the link\n", cluster,
                thread_blocks_for(of), milliseconds, 2 * (n - 1) / n * 268435456e-6 / milliseconds);
  }
}

// Rank 0 starts what the others never do.
TEST(PacedDeviceOnGpu, AbortEndsACollectiveThatAnotherRankNeverStarts) {
  PacedRanks ranks("gpu:2,link=50GB/s");
  on_gpu_ranks(ranks, [&](std::int64_t rank, StreamCollectives& collectives, GpuMemory& memory) {
    const Segment buffer{memory.allocate(4 << 20), 4 << 20};
    const std::size_t prepared = collectives.prepare(all_reduce_of(2, 4 << 20), {&buffer, 1}, {&buffer, 1});
    collectives.connect();
    if (rank == 0) {
      const auto stream = static_cast<cudaStream_t>(memory.stream(0));
      collectives.start(prepared, {&buffer, 1}, {&buffer, 1}, stream);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
      collectives.abort("a test");
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    }
    ranks.exchange(rank)("");
    EXPECT_THROW(collectives.start(prepared, {&buffer, 1}, {&buffer, 1}, memory.stream(0)), RunFailed);
  });
}

TEST(PacedDeviceOnGpu, AKernelThatWaitsTooLongSaysSo) {
  PacedRanks ranks("gpu:2,link=50GB/s");
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    require(cudaSetDevice(0));
    GpuMemory memory;
    memory.make_streams();
    PacedDeviceOptions options = ranks.options(rank);
    options.timeout = std::chrono::seconds(1);
    const std::unique_ptr<StreamCollectives> collectives = make_paced_device_collectives(options, ranks.exchange(rank));
    const Segment buffer{memory.allocate(4096), 4096};
    const std::size_t prepared = collectives->prepare(all_reduce_of(2, 4096), {&buffer, 1}, {&buffer, 1});
    collectives->connect();
    if (rank == 0) collectives->start(prepared, {&buffer, 1}, {&buffer, 1}, memory.stream(0));
    memory.wait();
    ranks.exchange(rank)("");
    EXPECT_EQ(collectives->failure(),
              "a collective of ranks 0, 1 on queue 0 has waited too long for a rank that did not come to it");
  }));
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU that CUDA can use");
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
