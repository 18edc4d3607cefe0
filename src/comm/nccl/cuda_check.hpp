// Where results of CUDA become exceptions, in words, in the modules of this folder.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string_view>

#include "base/error.hpp"

namespace weft {

inline void cuda_check(cudaError_t error, std::string_view call) {
  if (error != cudaSuccess) throw RunFailed(fmt::format("{}: {}", call, cudaGetErrorString(error)));
}

}  // namespace weft
