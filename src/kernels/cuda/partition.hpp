// A part of a GPU's SMs that kernels of one accelerator keep to: a green context of the driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/accelerator.hpp"

namespace weft::cuda {

class Partition {
 public:
  // The device must be the thread's current one. Throws Error where it cannot be cut so.
  Partition(int device, SmShare share);
  ~Partition();
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  int processors() const { return processors_; }
  // The runtime's calls of this thread work in the partition from then on: what waits for "the device" waits for its
  // work alone.
  void enter() const;
  cudaStream_t make_stream(int priority) const;

 private:
  CUgreenCtx green_ = nullptr;
  CUcontext context_ = nullptr;
  int processors_ = 0;
};

}  // namespace weft::cuda
