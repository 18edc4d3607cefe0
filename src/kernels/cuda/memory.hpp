// Memory of a CUDA device and of the host beside it, and the check of the runtime's calls.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft::cuda {

// Throw RunFailed, which says what was done and what went wrong.
void check(cudaError_t status, const char* action);

// Memory of the device, freed with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFree(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t size_ = 0;
};

// Memory of the host that the device reads and writes.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { cudaFreeHost(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace weft::cuda
