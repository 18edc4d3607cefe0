// The one place where results of NCCL become exceptions, in words.
#pragma once

#include <nccl.h>

#include <string_view>

#include "comm/nccl/cuda_check.hpp"

namespace weft::nccl {

// Communicators are made without blocking, so a call that goes on is none that failed.
inline bool is_fine(ncclResult_t result) {
  return result == ncclSuccess || result == ncclInProgress;
}

// What NCCL itself says of the last thing that went wrong in this process, where it says anything.
inline std::string in_words(ncclResult_t result, ncclComm_t comm) {
  const std::string_view details = comm != nullptr ? ncclGetLastError(comm) : "";
  const bool shares_gpu = details.find("Duplicate GPU") != std::string_view::npos;
  return fmt::format("{}{}{}{}", ncclGetErrorString(result), details.empty() ? "" : ": ", details,
                     shares_gpu ? "; tools/gpu_ranks.sh starts several ranks on one GPU, with MPS" : "");
}

inline void nccl_check(ncclResult_t result, std::string_view call, std::string_view who = "",
                       ncclComm_t comm = nullptr) {
  if (is_fine(result)) return;
  throw RunFailed(fmt::format("{}{}{}: {}", call, who.empty() ? "" : " among ", who, in_words(result, comm)));
}

}  // namespace weft::nccl
