// The kernel of a paced collective.
#pragma once

#include <cuda_runtime_api.h>

#include "comm/paced_device/paced_launch.hpp"

namespace weft::paced {

// fp32, bf16, i32 and i64; others are refused before.
cudaError_t start_kernel(const PacedLaunch& launch, cudaStream_t stream);

}  // namespace weft::paced
