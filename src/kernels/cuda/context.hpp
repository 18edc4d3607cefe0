// What all kernels of one CUDA device share: streams and events, memory of the device, host data on its way to it,
// results on their way back, and scratch memory by stream.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/accelerator.hpp"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/partition.hpp"
#include "kernels/cuda/recorded_data.hpp"

namespace weft::cuda {

void check(cublasStatus_t status, const char* action);

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault);
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

// What one kernel needs at once, told apart. Memory of a purpose stays until the stream's next call that names it.
enum class Scratch : std::uint8_t {
  partial_sums,
  row_values,
  flag,
  order,
  queries,
  keys,
  d_queries,
  d_keys,
  scores,
  softmax,
  gradients,
  d_scores,
  elimination,
  half_product,
  workspace,  // of cuBLASLt
  count
};

// Host data of calls in one stream on its way to the device: a few blocks that take turns. A block is written again
// when all that the stream had to do up to its end is over.
class StagingRing {
 public:
  const std::byte* stage(std::span<const std::byte> data, cudaStream_t stream);

 private:
  struct Block {
    PinnedMemory host;
    DeviceMemory device;
    Event last_use{cudaEventDisableTiming};
    std::int64_t size = 0, used = 0;
  };
  Block& block_with(std::int64_t bytes, cudaStream_t stream);
  void make_blocks(std::int64_t bytes, cudaStream_t stream);

  std::array<std::unique_ptr<Block>, 4> blocks_;
  std::size_t current_ = 0;
};

class Stream {
 public:
  // `partition`: null where it has all of the GPU.
  Stream(StreamPriority priority, const Partition* partition);
  cudaStream_t get() const { return stream_.get(); }
  std::byte* scratch(Scratch purpose, std::int64_t bytes);
  const std::byte* stage(std::span<const std::byte> data) { return staging_.stage(data, get()); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
  };
  std::unique_ptr<CUstream_st, Destroy> stream_;
  std::array<DeviceMemory, static_cast<std::size_t>(Scratch::count)> scratch_;
  std::vector<DeviceMemory> outgrown_;  // to free it takes as long as whatever runs on the GPU
  StagingRing staging_;
};

// Results that kernels write to pinned memory, numbered as they were asked for.
class Results {
 public:
  // Where the device writes the result: a double, or a 64-bit integer that is not zero for true.
  double* ask_for(double& wanted);
  std::uint64_t* ask_for(bool& wanted);
  std::uint64_t asked_for() const { return records_ ? kFirstRecorded + recorded_.size() : asked_for_; }
  void deliver(ResultRange results);
  void deliver_all() { deliver({first_kept(), asked_for_}); }
  // Those that are asked for while calls are recorded have slots and numbers of their own: every start writes them.
  void set_recording(bool records) { records_ = records; }

 private:
  static constexpr std::uint64_t kSlots = 1 << 14, kFirstRecorded = std::uint64_t{1} << 62;
  struct Pending {
    double* number = nullptr;
    bool* truth = nullptr;
  };
  struct Recorded {
    Pending pending;
    std::byte* value = nullptr;
  };
  static void write(const Pending& pending, const std::byte* value);
  std::byte* take_slot(Pending pending);
  std::byte* take_recorded_slot(Pending pending);
  std::uint64_t first_kept() const { return asked_for_ > kSlots ? asked_for_ - kSlots : 0; }

  PinnedMemory values_{kSlots * 8};
  std::vector<Pending> pending_ = std::vector<Pending>(kSlots);
  std::uint64_t asked_for_ = 0;
  bool records_ = false;
  std::vector<Recorded> recorded_;
  std::vector<PinnedMemory> recorded_values_;  // kSlots each
};

// When events were over by the host's steady clock: the device says how long after a base event that the host saw.
class EventClock {
 public:
  explicit EventClock(cudaStream_t stream) : stream_(stream) { set_base(); }
  std::int64_t time_of(cudaEvent_t event);

 private:
  struct Base {
    Event event;
    std::int64_t time = 0;  // nanoseconds
  };
  void set_base();

  cudaStream_t stream_;
  Base base_, before_;  // what was recorded before the base is timed by the one before it
};

// A value of the host that a kernel reads. Arguments of recorded kernels stay what they were, so these find it in the
// device's memory (value_of in launch.cuh).
template <class T>
struct HostValue {
  T value = {};
  const T* recorded = nullptr;
};

class Context {
 public:
  explicit Context(const AcceleratorOptions& options);

  // The runtime keeps device and partition by thread.
  void enter() const;
  Stream& stream(StreamId id) { return streams_[id.index()]; }
  Stream& current() { return *current_; }
  cudaStream_t current_stream() { return current_->get(); }
  void use(StreamId id) { current_ = &stream(id); }
  StreamId make_stream(StreamPriority priority);
  int device() const { return device_; }
  const Partition* partition() const { return partition_ ? &*partition_ : nullptr; }
  int processors() const { return processors_; }  // of the partition
  int all_processors() const { return all_processors_; }
  const std::string& name() const { return name_; }
  cublasLtHandle_t products() const { return products_.get(); }
  Results& results() { return results_; }
  const Results& results() const { return results_; }

  template <class T>
  T* scratch(Scratch purpose, std::int64_t count) {
    return reinterpret_cast<T*>(current_->scratch(purpose, count * static_cast<std::int64_t>(sizeof(T))));
  }
  // A copy on the device for the calls of the current stream; the host's data may change at once.
  template <class T>
  const T* stage(std::span<const T> data) {
    const std::span<const std::byte> bytes = std::as_bytes(data);
    return reinterpret_cast<const T*>(recorded_ != nullptr ? recorded_->take(bytes) : current_->stage(bytes));
  }
  template <class T>
  HostValue<T> host_value(const T& value) {
    return {value, records() ? stage(std::span<const T>(&value, 1)) : nullptr};
  }
  // What a recording is given at every start: null while calls are carried out.
  void use_recorded(RecordedData* data) { recorded_ = data; }
  bool records() const { return recorded_ != nullptr; }
  // Whether calls only take the host data of a recording and start no kernel.
  bool only_takes_data() const { return recorded_ != nullptr && recorded_->is_renewed(); }
  void clear(const Matrix& x);  // to zeros

 private:
  struct DestroyProducts {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  int device_, processors_ = 0, all_processors_ = 0;
  std::optional<Partition> partition_;  // before all that lies in it
  std::string name_;
  std::deque<Stream> streams_;
  Stream* current_ = nullptr;
  std::unique_ptr<cublasLtContext, DestroyProducts> products_;
  Results results_;
  RecordedData* recorded_ = nullptr;
};

}  // namespace weft::cuda
