// The module's part. It works in the context that the thread has made current: an accelerator's partition of the GPU.
#include <vector>

#include "comm/nccl/batch_kernels.hpp"
#include "comm/nccl/cuda_check.hpp"
#include "comm/paced_device/paced_device.hpp"
#include "comm/paced_device/paced_kernel.hpp"

namespace weft::paced {
namespace {

class CudaPacedDevice final : public PacedDevice {
 public:
  CudaPacedDevice() {
    cuda_check(nccl::load_kernels(), "loading kernels");
    cuda_check(paced::load_kernels(), "loading kernels");
  }
  ~CudaPacedDevice() override {
    for (std::byte* const memory : memory_) (void)cudaFree(memory);
  }

  std::shared_ptr<std::byte> share(std::int64_t bytes) override {
    const std::shared_ptr<std::byte> memory(take(bytes), [](std::byte* taken) { (void)cudaFree(taken); });
    cuda_check(cudaMemset(memory.get(), 0, static_cast<std::size_t>(bytes)), "cudaMemset");
    cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return memory;
  }

  std::shared_ptr<std::byte> share_with_host(std::int64_t bytes) override {
    void* taken = nullptr;
    cuda_check(cudaHostAlloc(&taken, static_cast<std::size_t>(bytes), cudaHostAllocPortable | cudaHostAllocMapped),
               "cudaHostAlloc");
    std::memset(taken, 0, static_cast<std::size_t>(bytes));
    return {static_cast<std::byte*>(taken), [](std::byte* memory) { (void)cudaFreeHost(memory); }};
  }

  std::byte* allocate(std::int64_t bytes) override { return memory_.emplace_back(take(bytes)); }

  void copy(std::span<const DeviceCopy> copies, void* stream) override {
    cuda_check(nccl::copy_places(copies, static_cast<cudaStream_t>(stream)), "copying segments together");
  }
  void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void* stream) override {
    cuda_check(nccl::reduce_places(how, sums, static_cast<cudaStream_t>(stream)), "adding up");
  }
  void launch(const PacedLaunch& launch, void* stream) override {
    cuda_check(start_kernel(launch, static_cast<cudaStream_t>(stream)), "starting a paced collective");
  }

 private:
  static std::byte* take(std::int64_t bytes) {
    void* memory = nullptr;
    cuda_check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), fmt::format("cudaMalloc of {} bytes", bytes));
    return static_cast<std::byte*>(memory);
  }

  std::vector<std::byte*> memory_;
};

}  // namespace
}  // namespace weft::paced

extern "C" __attribute__((visibility("default"))) weft::PacedDevice* weft_make_paced_device() {
  return new weft::paced::CudaPacedDevice();
}
