// The device, and what the module exports.
#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "kernels/accelerator_module.hpp"
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/fast_attention.hpp"
#include "kernels/cuda/recorder.hpp"

namespace weft::cuda {

CudaKernels::CudaKernels(Context& context)
    : context_(context), products_(context), fast_attention_(make_fast_attention(context.device())) {}
CudaKernels::~CudaKernels() = default;

void CudaKernels::synchronize() {
  check(cudaDeviceSynchronize(), "working");
  context_.results().deliver_all();
}

namespace {

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(const AcceleratorOptions& options, CheckKernels* checked)
      : context_(options), kernels_(checked(std::make_unique<CudaKernels>(context_))) {}
  ~CudaAccelerator() override {
    // Nothing may use what is freed now. An error has been reported already, or nobody asks any more.
    try {
      context_.enter();
    } catch (const RunFailed&) {
    }
    cudaDeviceSynchronize();
  }

  Kernels& kernels() override { return *kernels_; }
  void use(StreamId stream) override { context_.use(stream); }

  std::byte* allocate(Bytes size) override {
    context_.enter();
    const DeviceMemory& memory = memory_.emplace_back(std::max<std::int64_t>(size.value, 1));
    check(cudaMemset(memory.data(), 0, static_cast<std::size_t>(memory.size())), "clearing memory");
    check(cudaDeviceSynchronize(), "clearing memory");
    return memory.data();
  }
  void release(std::byte* memory) override {
    cudaSetDevice(context_.device());  // an error has been reported already, or will be by the next call
    std::erase_if(memory_, [&](const DeviceMemory& each) { return each.data() == memory; });
  }
  void copy_in(std::span<const std::byte> host, std::byte* device) override {
    context_.enter();
    check(cudaDeviceSynchronize(), "working");
    check(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice), "copying to the GPU");
    check(cudaDeviceSynchronize(), "copying to the GPU");
  }
  void copy_out(const std::byte* device, std::span<std::byte> host) override {
    context_.enter();
    check(cudaDeviceSynchronize(), "working");
    check(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost), "copying from the GPU");
  }
  void clear(StreamId stream, std::byte* device, Bytes size) override {
    context_.enter();
    check(cudaMemsetAsync(device, 0, static_cast<std::size_t>(size.value), context_.stream(stream).get()),
          "clearing memory");
  }

  StreamId make_stream(StreamPriority priority) override {
    context_.enter();
    return context_.make_stream(priority);
  }
  EventId make_event() override {
    context_.enter();
    events_.emplace_back();
    return {static_cast<std::int32_t>(events_.size()) - 1};
  }
  void record(EventId event, StreamId stream) override {
    context_.enter();
    const cudaEvent_t own = events_[event.index()].get();
    const cudaStream_t in = context_.stream(stream).get();
    if (recorder_.is_recording()) return recorder_.record(own, event.index(), in);
    check(cudaEventRecord(own, in), "recording an event");
  }
  void wait(StreamId stream, EventId event) override {
    context_.enter();
    const cudaEvent_t own = events_[event.index()].get();
    const cudaStream_t in = context_.stream(stream).get();
    if (recorder_.is_recording()) return recorder_.wait(in, own, event.index());
    check(cudaStreamWaitEvent(in, own), "waiting for an event");
  }
  bool is_over(EventId event) override {
    context_.enter();
    const cudaError_t status = cudaEventQuery(events_[event.index()].get());
    if (status == cudaErrorNotReady) return false;
    check(status, "working");
    return true;
  }
  std::int64_t time_of(EventId event) override {
    context_.enter();
    return clock_.time_of(events_[event.index()].get());
  }

  std::uint64_t results_asked_for() const override { return context_.results().asked_for(); }
  void deliver(ResultRange results) override { context_.results().deliver(results); }
  // Graphs were not tried on partitions of a GPU.
  CallRecorder* recorder() override { return context_.partition() == nullptr ? &recorder_ : nullptr; }

  void* native(StreamId stream) override { return context_.stream(stream).get(); }
  std::string in_words() const override {
    const std::string attention = has_fast_attention() ? "" : ", attention not fused: libtorch has no CUDA";
    if (context_.partition() == nullptr) {
      return fmt::format("{}, {} SMs{}", context_.name(), context_.processors(), attention);
    }
    return fmt::format("{}, {} of {} SMs{}", context_.name(), context_.processors(), context_.all_processors(),
                       attention);
  }

 private:
  Context context_;
  std::deque<DeviceMemory> memory_;
  std::deque<Event> events_;
  Stream clock_stream_{StreamPriority::high, context_.partition()};  // empty but for the clock's own events
  EventClock clock_{clock_stream_.get()};
  Recorder recorder_{context_};
  std::unique_ptr<Kernels> kernels_;
};

Accelerator* make_accelerator(const AcceleratorOptions& options, CheckKernels* checked) {
  int count = 0, driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    fail("no GPU can be used: this machine has no driver of NVIDIA");
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver)
    fail("the GPU's driver is too old for CUDA {}.{}", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (status != cudaSuccess) fail("no GPU can be used: {}", cudaGetErrorString(status));
  if (count == 0) fail("no GPU can be used: the driver finds none; CUDA_VISIBLE_DEVICES may hide them");
  if (options.number < 0 || options.number >= count)
    fail("GPU {} is not in 0..{}, those of this machine", options.number, count - 1);
  return new CudaAccelerator(options, checked);
}

}  // namespace
}  // namespace weft::cuda

extern "C" __attribute__((visibility("default"))) const weft::AcceleratorFactory* weft_accelerator_factory() {
  static const weft::AcceleratorFactory factory = {weft::cuda::make_accelerator};
  return &factory;
}
