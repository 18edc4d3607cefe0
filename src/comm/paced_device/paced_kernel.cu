#include "comm/paced_device/paced_body.hpp"
#include "comm/paced_device/paced_kernel.hpp"

namespace weft::paced {
namespace {

constexpr int kDataThreads = 480;  // of a block; one more warp sees to the time
constexpr int kWarp = 32;
constexpr unsigned kLooksBetweenSignals = 256;  // a look at the host's memory takes a microsecond

__device__ std::int64_t now() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return static_cast<std::int64_t>(time);
}
__device__ std::uint64_t load_acquire(const std::uint64_t* place) {
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
  return value;
}
__device__ void add_release(std::uint64_t* place, std::uint64_t value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
}
__device__ std::uint32_t load_volatile(const std::uint32_t* place) {
  return *static_cast<const volatile std::uint32_t*>(place);
}

__device__ void arrive(const PacedLaunch& launch) {
  __threadfence();
  add_release(&launch.group->arrived, 1);
}

// False where all kernels are to end, which this one says itself where it has waited too long.
__device__ bool wait_for(const PacedLaunch& launch, std::uint64_t arrived) {
  const std::int64_t begin = now();
  for (unsigned looks = 1; load_acquire(&launch.group->arrived) < arrived; ++looks) {
    if (looks % kLooksBetweenSignals != 0) continue;
    if (load_volatile(&launch.signals->aborted) != 0) return false;
    if (now() - begin < launch.longest_wait) continue;
    *static_cast<volatile std::uint32_t*>(&launch.signals->late_group) = launch.group_number + 1;
    __threadfence_system();
    *static_cast<volatile std::uint32_t*>(&launch.signals->aborted) = 1;
    return false;
  }
  return true;
}

// The data threads of a block. What other members wrote is read past the first cache, which does not see it.
class DeviceBlock {
 public:
  __device__ DeviceBlock(const PacedLaunch& launch, const std::byte** sources, bool* met)
      : launch_(launch), sources_(sources), met_(met) {}

  __device__ int index() const { return static_cast<int>(blockIdx.x); }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int threads() const { return kDataThreads; }
  __device__ std::int64_t thread_of_all() const { return std::int64_t{blockIdx.x} * kDataThreads + threadIdx.x; }
  __device__ std::int64_t all_threads() const { return std::int64_t{gridDim.x} * kDataThreads; }
  __device__ const std::byte** sources() const { return sources_; }
  __device__ void sync() const { asm volatile("bar.sync 1, %0;" ::"n"(kDataThreads) : "memory"); }

  __device__ bool meet(std::uint64_t arrived) const {
    sync();
    if (thread() == 0) {
      arrive(launch_);
      *met_ = wait_for(launch_, arrived);
    }
    sync();
    return *met_;
  }

  template <class Group>
  __device__ Group load(const Group* place) const {
    Group group;
    if constexpr (sizeof(Group) == 16) {
      const int4 bits = __ldcg(reinterpret_cast<const int4*>(place));
      memcpy(&group, &bits, sizeof(group));
    } else if constexpr (sizeof(Group) == 8) {
      const unsigned long long bits = __ldcg(reinterpret_cast<const unsigned long long*>(place));
      memcpy(&group, &bits, sizeof(group));
    } else if constexpr (sizeof(Group) == 4) {
      const unsigned bits = __ldcg(reinterpret_cast<const unsigned*>(place));
      memcpy(&group, &bits, sizeof(group));
    } else if constexpr (sizeof(Group) == 1) {
      const unsigned char bits = __ldcg(reinterpret_cast<const unsigned char*>(place));
      memcpy(&group, &bits, sizeof(group));
    } else {
      static_assert(sizeof(Group) == 2);
      const unsigned short bits = __ldcg(reinterpret_cast<const unsigned short*>(place));
      memcpy(&group, &bits, sizeof(group));
    }
    return group;
  }

 private:
  const PacedLaunch& launch_;
  const std::byte** sources_;
  bool* met_;
};

// Of one warp, whose lanes look at the links side by side.
class DeviceClock {
 public:
  __device__ explicit DeviceClock(const PacedLaunch& launch)
      : launch_(launch), lane_(static_cast<int>(threadIdx.x) - kDataThreads) {}

  __device__ std::int64_t now() const { return __shfl_sync(~0U, paced::now(), 0); }
  __device__ bool is_aborted() {
    if (++looks_ % kLooksBetweenSignals != 0) return false;
    return __shfl_sync(~0U, load_volatile(&launch_.signals->aborted), 0) != 0;
  }
  __device__ void use_links(const Pace& pace) const {
    for (int i = lane_; i < pace.link_count; i += kWarp) atomicAdd(pace.collectives + pace.links[i], 1U);
  }
  __device__ void leave_links(const Pace& pace) const {
    for (int i = lane_; i < pace.link_count; i += kWarp) atomicSub(pace.collectives + pace.links[i], 1U);
  }
  __device__ std::uint32_t most_collectives_on_a_link(const Pace& pace) const {
    std::uint32_t most = 1;
    for (int i = lane_; i < pace.link_count; i += kWarp) {
      most = max(most, load_volatile(pace.collectives + pace.links[i]));
    }
    return __reduce_max_sync(~0U, most);
  }

 private:
  const PacedLaunch& launch_;
  int lane_;
  unsigned looks_ = 0;
};

template <class T>
__global__ void __launch_bounds__(kDataThreads + kWarp, 1) collective(const __grid_constant__ PacedLaunch launch) {
  __shared__ const std::byte* sources[kMaxPacedRanks];
  __shared__ bool all_met;
  if (threadIdx.x < kDataThreads) {
    DeviceBlock block(launch, sources, &all_met);
    carry_out<T>(block, launch);
    return;
  }
  if (!launch.is_paced || launch.self != 0 || blockIdx.x != 0) return;
  const bool is_first_lane = threadIdx.x == kDataThreads;
  const int met = is_first_lane ? wait_for(launch, launch.arrived + launch.arrivals_of_meeting()) : 0;
  if (__shfl_sync(~0U, met, 0) == 0) return;
  DeviceClock clock(launch);
  if (!keep_pace(clock, launch.pace) || !is_first_lane) return;
  if (wait_for(launch, launch.arrived + launch.arrivals_before_last_meeting())) arrive(launch);
}

template <class T>
cudaError_t start(const PacedLaunch& launch, cudaStream_t stream) {
  collective<T><<<static_cast<unsigned>(launch.blocks), kDataThreads + kWarp, 0, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t load_kernels() {
  // To ask for the attributes of a kernel loads it.
  cudaFuncAttributes attributes;
  cudaError_t error = cudaSuccess;
  for (auto* const kernel : {collective<float>, collective<Bf16>, collective<std::int32_t>, collective<std::int64_t>,
                             collective<std::uint8_t>}) {
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, kernel);
  }
  return error;
}

cudaError_t start_kernel(const PacedLaunch& launch, cudaStream_t stream) {
  switch (launch.type) {
    case ElementType::fp32:
      return start<float>(launch, stream);
    case ElementType::bf16:
      return start<Bf16>(launch, stream);
    case ElementType::i32:
      return start<std::int32_t>(launch, stream);
    case ElementType::i64:
      return start<std::int64_t>(launch, stream);
    case ElementType::u8:
      return start<std::uint8_t>(launch, stream);
    case ElementType::fp16:
    case ElementType::fp8:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace weft::paced
