// How long NCCL's all_reduce takes on these ranks, by itself. The result is checked before it is timed.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "comm/nccl/test_nccl_session.hpp"

namespace weft::nccl_ranks {
namespace {

constexpr std::int64_t kMebibytes[] = {1, 16, 200};
constexpr int kExecutions = 10;

PreparedCall all_reduce_of(std::int64_t ranks, std::int64_t bytes) {
  PreparedCall call;
  call.spec = {.kind = Collective::all_reduce, .ranks = ranks};
  call.sizes = {bytes / 4};
  for (std::int64_t rank = 0; rank < ranks; ++rank) call.members.push_back(rank);
  call.label = "timing";
  return call;
}

float milliseconds_of(StreamCollectives& collectives, std::size_t call, const Segment& buffer, cudaStream_t stream) {
  cudaEvent_t begin = nullptr, end = nullptr;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  require(cudaEventRecord(begin, stream));
  collectives.start(call, {&buffer, 1}, {&buffer, 1}, stream);
  require(cudaEventRecord(end, stream));
  require(cudaEventSynchronize(end));
  float milliseconds = 0;
  require(cudaEventElapsedTime(&milliseconds, begin, end));
  require(cudaEventDestroy(begin));
  require(cudaEventDestroy(end));
  return milliseconds;
}

}  // namespace

void print_timings(Session& session) {
  const std::int64_t ranks = session.launch.ranks;
  const std::unique_ptr<StreamCollectives> collectives = session.make();
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<Segment> buffers;
  std::vector<std::size_t> calls;
  for (const std::int64_t mebibytes : kMebibytes) {
    void* memory = nullptr;
    const std::int64_t bytes = mebibytes << 20;
    require(cudaMalloc(&memory, static_cast<std::size_t>(bytes)));
    buffers.push_back({static_cast<std::byte*>(memory), bytes});
    calls.push_back(collectives->prepare(all_reduce_of(ranks, bytes), {&buffers.back(), 1}, {&buffers.back(), 1}));
  }
  collectives->connect();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Segment& buffer = buffers[i];
    std::vector<float> values(static_cast<std::size_t>(buffer.bytes / 4), static_cast<float>(session.launch.rank + 1));
    require(cudaMemcpy(buffer.data, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    milliseconds_of(*collectives, calls[i], buffer, stream);
    require(cudaMemcpy(values.data(), buffer.data, values.size() * 4, cudaMemcpyDeviceToHost));
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    if (std::any_of(values.begin(), values.end(), [&](float value) { return value != sum; })) {
      throw std::runtime_error("all_reduce gave a wrong sum");
    }
    require(cudaMemset(buffer.data, 0, static_cast<std::size_t>(buffer.bytes)));  // sums stay finite
    std::vector<float> times;
    for (int execution = 0; execution < kExecutions; ++execution) {
      times.push_back(milliseconds_of(*collectives, calls[i], buffer, stream));
    }
    std::sort(times.begin(), times.end());
    const double seconds = static_cast<double>(times[times.size() / 2]) * 1e-3;
    // Every rank sends and receives 2 (N - 1) / N of the bytes in a ring.
    const double moved =
        static_cast<double>(buffer.bytes) * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
    if (session.launch.rank != 0) continue;
    fmt::print(
        "{{\"bench\":\"nccl_all_reduce\",\"ranks\":{},\"bytes\":{},\"seconds\":{:.6f},\"bus_gib_per_s\":{:.2f}}}\n",
        ranks, buffer.bytes, seconds, moved / seconds / (1 << 30));
    std::fflush(stdout);
  }
}

}  // namespace weft::nccl_ranks
