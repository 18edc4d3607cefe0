// The kernel of a paced collective.
#pragma once

#include <cuda_runtime_api.h>

#include "comm/paced_device/paced_launch.hpp"

namespace weft::paced {

// CUDA loads a kernel when it is first started, and may wait for the whole GPU then: for a kernel of another rank, say,
// that waits for this one. So a rank loads all of them before it starts any.
cudaError_t load_kernels();

// fp32, bf16, i32, i64 and u8; others are refused before.
cudaError_t start_kernel(const PacedLaunch& launch, cudaStream_t stream);

}  // namespace weft::paced
