// Copies and sums of many places of the device in few launches.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "base/element_type.hpp"
#include "comm/nccl/nccl_links.hpp"

namespace weft::nccl {

cudaError_t copy_places(std::span<const DeviceCopy> copies, cudaStream_t stream);
// to += from; sums of 16-bit floats are rounded once. fp8 is refused before.
cudaError_t add_places(ElementType type, std::span<const DeviceCopy> sums, cudaStream_t stream);

}  // namespace weft::nccl
