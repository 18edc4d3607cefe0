#include "kernels/cuda/context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace weft::cuda {
namespace {

constexpr std::int64_t kStagingBlock = 1 << 20;
constexpr double kLongestAfterBase = 2000;  // milliseconds: a float of them still tells microseconds apart

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void check(cudaError_t status, const char* action) {
  if (status != cudaSuccess) throw RunFailed(fmt::format("the GPU failed: {}: {}", action, cudaGetErrorString(status)));
}
void check(cublasStatus_t status, const char* action) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw RunFailed(fmt::format("cuBLASLt failed: {}: {}", action, cublasLtGetStatusString(status)));
}

DeviceMemory::DeviceMemory(std::int64_t bytes) : size_(bytes) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    std::size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw RunFailed(fmt::format("the GPU has too little memory: {} MiB are wanted, {} of {} MiB are free", bytes >> 20,
                                free >> 20, total >> 20));
  }
  check(status, "taking memory");
  data_.reset(static_cast<std::byte*>(memory));
}

PinnedMemory::PinnedMemory(std::int64_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, static_cast<std::size_t>(bytes), cudaHostAllocPortable), "taking pinned host memory");
  data_.reset(static_cast<std::byte*>(memory));
}

Event::Event(unsigned flags) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, flags), "making an event");
  event_.reset(event);
}

// All of them at once, at the first use: to take memory may take as long as whatever runs on the GPU.
void StagingRing::make_blocks(std::int64_t bytes, cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "waiting for staged data");
  const std::int64_t size = std::max(bytes, kStagingBlock);
  for (std::unique_ptr<Block>& block : blocks_) {
    block.reset(new Block{PinnedMemory(size), DeviceMemory(size), Event(cudaEventDisableTiming), size, 0});
  }
}

StagingRing::Block& StagingRing::block_with(std::int64_t bytes, cudaStream_t stream) {
  if (blocks_[current_] == nullptr || blocks_[current_]->size < bytes) make_blocks(bytes, stream);
  if (blocks_[current_]->used + bytes <= blocks_[current_]->size) return *blocks_[current_];
  check(cudaEventRecord(blocks_[current_]->last_use.get(), stream), "recording an event");
  current_ = (current_ + 1) % blocks_.size();
  Block& block = *blocks_[current_];
  check(cudaEventSynchronize(block.last_use.get()), "waiting for staged data");
  block.used = 0;
  return block;
}

const std::byte* StagingRing::stage(std::span<const std::byte> data, cudaStream_t stream) {
  if (data.empty()) return nullptr;
  const std::int64_t bytes = (std::ssize(data) + 255) / 256 * 256;
  Block& block = block_with(bytes, stream);
  std::byte* const host = block.host.data() + block.used;
  std::byte* const device = block.device.data() + block.used;
  block.used += bytes;
  std::memcpy(host, data.data(), data.size());
  check(cudaMemcpyAsync(device, host, data.size(), cudaMemcpyHostToDevice, stream), "staging host data");
  return device;
}

Stream::Stream(StreamPriority priority, const Partition* partition) {
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "asking for the priorities of streams");
  const int level = priority == StreamPriority::high ? highest : lowest;
  cudaStream_t stream = nullptr;
  if (partition != nullptr) {
    stream = partition->make_stream(level);
  } else {
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, level), "making a stream");
  }
  stream_.reset(stream);
}

std::byte* Stream::scratch(Scratch purpose, std::int64_t bytes) {
  DeviceMemory& memory = scratch_[static_cast<std::size_t>(purpose)];
  if (memory.size() < bytes) {
    const std::int64_t size = std::max(bytes, memory.size() + memory.size() / 4);
    if (memory.size() > 0) outgrown_.push_back(std::move(memory));
    memory = DeviceMemory((size + 255) / 256 * 256);
  }
  return memory.data();
}

std::byte* Results::take_recorded_slot(Pending pending) {
  const std::size_t slot = recorded_.size() % kSlots;
  if (slot == 0) recorded_values_.emplace_back(kSlots * 8);
  std::byte* const value = recorded_values_.back().data() + slot * 8;
  recorded_.push_back({pending, value});
  return value;
}
std::byte* Results::take_slot(Pending pending) {
  if (records_) return take_recorded_slot(pending);
  const std::uint64_t slot = asked_for_++ % kSlots;
  WEFT_CHECK(pending_[slot].number == nullptr && pending_[slot].truth == nullptr);
  pending_[slot] = pending;
  return values_.data() + slot * 8;
}
double* Results::ask_for(double& wanted) {
  return reinterpret_cast<double*>(take_slot({.number = &wanted}));
}
std::uint64_t* Results::ask_for(bool& wanted) {
  return reinterpret_cast<std::uint64_t*>(take_slot({.truth = &wanted}));
}

void Results::write(const Pending& pending, const std::byte* value) {
  if (pending.number != nullptr) std::memcpy(pending.number, value, sizeof(double));
  std::uint64_t truth = 0;
  std::memcpy(&truth, value, sizeof truth);
  if (pending.truth != nullptr) *pending.truth = truth != 0;
}

void Results::deliver(ResultRange results) {
  if (results.begin >= kFirstRecorded) {
    for (std::uint64_t number = results.begin; number < results.end; ++number) {
      const Recorded& recorded = recorded_[number - kFirstRecorded];
      write(recorded.pending, recorded.value);
    }
    return;
  }
  WEFT_CHECK(results.end <= asked_for_);
  for (std::uint64_t number = std::max(results.begin, first_kept()); number < results.end; ++number) {
    Pending& pending = pending_[number % kSlots];
    write(pending, values_.data() + number % kSlots * 8);
    pending = {};
  }
}

// The shortest of a few tries, in which the host saw the event soonest.
void EventClock::set_base() {
  std::swap(base_, before_);
  std::int64_t shortest = INT64_MAX;
  Event tried;
  for (int i = 0; i < 5; ++i) {
    const std::int64_t before = now();
    check(cudaEventRecord(tried.get(), stream_), "recording an event");
    check(cudaEventSynchronize(tried.get()), "waiting for an event");
    const std::int64_t after = now();
    if (after - before >= shortest) continue;
    shortest = after - before;
    base_.time = before + shortest / 2;
    std::swap(base_.event, tried);
  }
}

std::int64_t EventClock::time_of(cudaEvent_t event) {
  const auto after = [&](const Base& base) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, base.event.get(), event), "asking for the time of an event");
    return static_cast<double>(milliseconds);
  };
  double milliseconds = after(base_);
  const bool is_before = milliseconds < 0 && before_.time != 0;
  const Base& base = is_before ? before_ : base_;
  if (is_before) milliseconds = after(before_);
  const std::int64_t time = base.time + static_cast<std::int64_t>(milliseconds * 1e6);
  if (!is_before && milliseconds > kLongestAfterBase) set_base();
  return time;
}

Context::Context(const AcceleratorOptions& options) : device_(options.number) {
  enter();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device_), "asking what it is");
  name_ = properties.name;
  processors_ = all_processors_ = properties.multiProcessorCount;
  if (options.share) {
    check(cudaFree(nullptr), "starting");  // the device's own context comes first
    partition_.emplace(device_, *options.share);
    processors_ = partition_->processors();
    enter();
  }
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "starting");
  products_.reset(handle);
  use(make_stream(StreamPriority::usual));
}

void Context::enter() const {
  if (partition_) return partition_->enter();
  int used = -1;
  if (cudaGetDevice(&used) != cudaSuccess || used != device_) check(cudaSetDevice(device_), "choosing the GPU");
}

void Context::clear(const Matrix& x) {
  if (x.rows == 0 || x.columns == 0) return;
  const auto width = static_cast<std::size_t>(x.columns * size_of(x.data.type).value);
  const std::size_t pitch = std::max(static_cast<std::size_t>(x.row_stride.value), width);
  check(cudaMemset2DAsync(x.data.address, pitch, 0, width, static_cast<std::size_t>(x.rows), current_stream()),
        "clearing memory");
}

StreamId Context::make_stream(StreamPriority priority) {
  streams_.emplace_back(priority, partition());
  return {static_cast<std::int32_t>(streams_.size()) - 1};
}

}  // namespace weft::cuda
