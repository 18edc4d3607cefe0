#include "kernels/cuda/partition.hpp"

#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <vector>

#include "base/error.hpp"

namespace weft::cuda {
namespace {

// The driver is asked for at run time: a program that is linked to it does not start where there is none.
template <class Function>
Function driver_function(const char* name, unsigned since) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result);
  if (status != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr) {
    fail("the GPU's driver is too old for partitions of a GPU: it has no {}", name);
  }
  return reinterpret_cast<Function>(found);
}

#define WEFT_DRIVER_FUNCTION(name, version) \
  PFN_##name##_v##version name = driver_function<PFN_##name##_v##version>(#name, version)
struct Driver {
  WEFT_DRIVER_FUNCTION(cuGetErrorString, 6000);
  WEFT_DRIVER_FUNCTION(cuCtxGetCurrent, 4000);
  WEFT_DRIVER_FUNCTION(cuCtxSetCurrent, 4000);
  WEFT_DRIVER_FUNCTION(cuDeviceGetDevResource, 12040);
  WEFT_DRIVER_FUNCTION(cuDevSmResourceSplitByCount, 12040);
  WEFT_DRIVER_FUNCTION(cuDevResourceGenerateDesc, 12040);
  WEFT_DRIVER_FUNCTION(cuGreenCtxCreate, 12040);
  WEFT_DRIVER_FUNCTION(cuGreenCtxDestroy, 12040);
  WEFT_DRIVER_FUNCTION(cuCtxFromGreenCtx, 12040);
  WEFT_DRIVER_FUNCTION(cuGreenCtxStreamCreate, 12050);

  void check(CUresult status, const char* action) const {
    if (status == CUDA_SUCCESS) return;
    const char* words = nullptr;
    cuGetErrorString(status, &words);
    throw RunFailed(fmt::format("the GPU failed: {}: {}", action, words != nullptr ? words : "unknown error"));
  }
};
#undef WEFT_DRIVER_FUNCTION

const Driver& driver() {
  static const Driver functions;
  return functions;
}

// The largest equal parts that the device can be cut into, so many of them. All ranks are given the same.
CUdevResource part_of(const CUdevResource& all, SmShare share) {
  const unsigned granularity = std::max(1U, all.sm.smCoscheduledAlignment);
  const unsigned smallest = std::max(granularity, all.sm.minSmPartitionSize);
  const auto parts = static_cast<unsigned>(share.parts);
  std::vector<CUdevResource> groups(parts);
  for (unsigned size = all.sm.smCount / parts / granularity * granularity; size >= smallest; size -= granularity) {
    unsigned count = parts;
    const CUresult status = driver().cuDevSmResourceSplitByCount(groups.data(), &count, &all, nullptr, 0, size);
    if (status == CUDA_SUCCESS && count >= parts) return groups[static_cast<std::size_t>(share.number)];
  }
  fail("{} ranks on one GPU: its {} SMs are cut into parts of at least {}, so {} ranks are possible", share.parts,
       all.sm.smCount, smallest, all.sm.smCount / smallest);
}

}  // namespace

Partition::Partition(int device, SmShare share) {
  WEFT_CHECK(share.number >= 0 && share.number < share.parts);
  const Driver& on = driver();
  CUdevResource all{};
  on.check(on.cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "asking for its SMs");
  CUdevResource own = part_of(all, share);
  CUdevResourceDesc description = nullptr;
  on.check(on.cuDevResourceGenerateDesc(&description, &own, 1), "describing a partition");
  on.check(on.cuGreenCtxCreate(&green_, description, device, CU_GREEN_CTX_DEFAULT_STREAM), "making a partition");
  on.check(on.cuCtxFromGreenCtx(&context_, green_), "making a partition");
  processors_ = static_cast<int>(own.sm.smCount);
}

Partition::~Partition() {
  CUcontext current = nullptr;
  if (driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context_) driver().cuCtxSetCurrent(nullptr);
  driver().cuGreenCtxDestroy(green_);
}

void Partition::enter() const {
  CUcontext current = nullptr;
  driver().check(driver().cuCtxGetCurrent(&current), "asking for the context");
  if (current != context_) driver().check(driver().cuCtxSetCurrent(context_), "entering a partition");
}

cudaStream_t Partition::make_stream(int priority) const {
  CUstream stream = nullptr;
  driver().check(driver().cuGreenCtxStreamCreate(&stream, green_, CU_STREAM_NON_BLOCKING, priority), "making a stream");
  return stream;
}

}  // namespace weft::cuda
