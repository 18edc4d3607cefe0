// The kernels themselves: ranks are threads of this process, each on a partition of one GPU as a run has them. Without
// partitions the driver may put streams of two ranks into one hardware queue, where a kernel that waits for another
// rank keeps that rank's from starting.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <numeric>
#include <thread>

#include "base/error.hpp"
#include "comm/nccl/test_nccl_calls.hpp"
#include "comm/paced_device/modelled_time.hpp"
#include "comm/paced_device/test_paced_ranks.hpp"
#include "comm/tcp/test_threads.hpp"
#include "kernels/accelerator.hpp"

namespace weft {
namespace {

using nccl_calls::Case;
using paced::PacedRanks;

// A rank's part of the GPU. Streams stay: to make one may take as long as whatever runs.
class Part {
 public:
  Part(std::int64_t rank, std::int64_t ranks)
      : gpu_(make_cuda_accelerator({.share = SmShare{static_cast<int>(rank), static_cast<int>(ranks)}})) {
    for (StreamId& stream : streams_) stream = gpu_->make_stream(StreamPriority::high);
  }

  Accelerator& gpu() { return *gpu_; }
  StreamId stream(std::int64_t queue) const { return streams_.at(static_cast<std::size_t>(queue)); }

 private:
  std::unique_ptr<Accelerator> gpu_;
  std::array<StreamId, 2> streams_{};
};

// By their count; they are made once, which takes a while, and main() ends them while CUDA is still there.
std::map<std::int64_t, std::vector<std::unique_ptr<Part>>> all_parts;

Part& part_of(std::int64_t rank, std::int64_t ranks) {
  std::vector<std::unique_ptr<Part>>& parts = all_parts[ranks];
  while (std::ssize(parts) < ranks) parts.push_back(std::make_unique<Part>(std::ssize(parts), ranks));
  return *parts[static_cast<std::size_t>(rank)];
}

class GpuMemory final : public nccl_calls::TestMemory {
 public:
  GpuMemory(Part& part, Exchange exchange) : part_(part), exchange_(std::move(exchange)) {}
  ~GpuMemory() override {
    for (std::byte* const block : blocks_) part_.gpu().release(block);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  // From large blocks, as it takes long to take many small ones.
  std::byte* allocate(std::size_t bytes) override {
    constexpr std::size_t kBlock = std::size_t{64} << 20, kAlignment = 256;
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (left_ < bytes) {
      left_ = std::max(bytes, kBlock);
      next_ = blocks_.emplace_back(part_.gpu().allocate(Bytes{static_cast<std::int64_t>(left_)}));
    }
    left_ -= bytes;
    return std::exchange(next_, next_ + bytes);
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) override { part_.gpu().copy_in(bytes, to); }
  std::vector<std::byte> read(const std::byte* from, std::size_t bytes) override {
    std::vector<std::byte> host(bytes);
    part_.gpu().copy_out(from, host);
    return host;
  }
  void* stream(std::int64_t queue) override { return part_.gpu().native(part_.stream(queue)); }
  void wait() override { part_.gpu().kernels().synchronize(); }
  void all_written() override { exchange_(""); }

  Accelerator& gpu() { return part_.gpu(); }
  StreamId queue(std::int64_t number) const { return part_.stream(number); }

 private:
  Part& part_;
  Exchange exchange_;
  std::vector<std::byte*> blocks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

using Body = std::function<void(std::int64_t rank, StreamCollectives& collectives, GpuMemory& memory)>;

// Nobody frees anything before all are done: that would wait for whatever runs.
void on_gpu_ranks(PacedRanks& ranks, const Body& body) {
  const std::int64_t count = ranks.cluster().device_count();
  for (std::int64_t rank = 0; rank < count; ++rank) part_of(rank, count);
  tcp::expect_no_errors(tcp::run_threads(count, [&](std::int64_t rank) {
    GpuMemory memory(part_of(rank, count), ranks.exchange(rank));
    memory.allocate(1);  // enters the partition
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
    const EventId begin = memory.gpu().make_event(), end = memory.gpu().make_event();
    ranks.exchange(rank)("");
    const auto start_all = [&] {
      for (std::size_t q = 0; q < prepared.size(); ++q) {
        const Segment& buffer = buffers[q];
        collectives.start(prepared[q], {&buffer, 1}, {&buffer, 1}, memory.stream(static_cast<std::int64_t>(q)));
      }
    };
    start_all();  // the events stand behind a call, which all ranks end together
    memory.gpu().record(begin, memory.queue(0));
    for (int i = 0; i < kTimes; ++i) start_all();
    memory.gpu().record(end, memory.queue(0));
    memory.wait();
    EXPECT_EQ(collectives.failure(), "");
    const auto elapsed = static_cast<double>(memory.gpu().time_of(end) - memory.gpu().time_of(begin));
    if (rank == 0) milliseconds = elapsed * 1e-6 / kTimes;
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
      collectives.start(prepared, {&buffer, 1}, {&buffer, 1}, memory.stream(0));
      const EventId end = memory.gpu().make_event();
      memory.gpu().record(end, memory.queue(0));
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      EXPECT_FALSE(memory.gpu().is_over(end));
      collectives.abort("a test");
      memory.wait();
      EXPECT_TRUE(memory.gpu().is_over(end));
    }
    ranks.exchange(rank)("");
    EXPECT_THROW(collectives.start(prepared, {&buffer, 1}, {&buffer, 1}, memory.stream(0)), RunFailed);
  });
}

TEST(PacedDeviceOnGpu, AKernelThatWaitsTooLongSaysSo) {
  PacedRanks ranks("gpu:2,link=50GB/s");
  for (const std::int64_t rank : {0, 1}) part_of(rank, 2);
  tcp::expect_no_errors(tcp::run_threads(2, [&](std::int64_t rank) {
    GpuMemory memory(part_of(rank, 2), ranks.exchange(rank));
    memory.allocate(1);  // enters the partition
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
  using namespace weft;
  constexpr int kSkipped = 77;
  testing::InitGoogleTest(&argc, argv);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  try {
    (void)make_cuda_accelerator();
  } catch (const Error& error) {
    std::printf("skipped: %s\n", error.what());
    return kSkipped;
  }
  const int code = RUN_ALL_TESTS();
  all_parts.clear();
  return code;
}
