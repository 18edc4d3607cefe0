// Copies and sums of many places of the device in few launches.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "comm/nccl/nccl_links.hpp"

namespace weft::nccl {

// CUDA loads a kernel when it is first started, and may wait for the whole device then: for a collective, say, that
// another rank has not started. So whoever waits for others loads all of them before.
cudaError_t load_kernels();

cudaError_t copy_places(std::span<const DeviceCopy> copies, cudaStream_t stream);
// Sums of 16-bit floats are rounded once. fp8 is refused before.
cudaError_t reduce_places(const DeviceReduction& how, std::span<const DeviceSum> sums, cudaStream_t stream);

}  // namespace weft::nccl
