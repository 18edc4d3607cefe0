// The module's part. Communicators are made without blocking, so that a rank that waits for one that is gone gives up.
#include "comm/nccl/nccl_links.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/nccl/batch_kernels.hpp"
#include "comm/nccl/nccl_check.hpp"

namespace weft::nccl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeToEnd{5};  // for the other ranks to end a communicator too

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code % 10000 / 100, code % 100);
}

ncclDataType_t type_of(ElementType type) {
  switch (type) {
    case ElementType::fp32:
      return ncclFloat32;
    case ElementType::bf16:
      return ncclBfloat16;
    case ElementType::fp16:
      return ncclFloat16;
    case ElementType::i32:
      return ncclInt32;
    case ElementType::i64:
      return ncclInt64;
    case ElementType::u8:
    case ElementType::fp8:  // is refused when calls are prepared
      break;
  }
  return ncclUint8;
}

ncclRedOp_t op_of(ReduceOp op) {
  constexpr ncclRedOp_t kOps[] = {ncclSum, ncclAvg, ncclMax, ncclMin};  // in the order of ReduceOp
  return kOps[static_cast<std::size_t>(op)];
}

// A stream of our own for the time of a call.
struct OwnStream {
  OwnStream() { cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~OwnStream() { (void)cudaStreamDestroy(stream); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t stream = nullptr;
};

class Links final : public NcclLinks {
 public:
  explicit Links(const NcclOptions& options) : options_(options) {
    constexpr int kBuilt = NCCL_VERSION_CODE;
    nccl_check(ncclGetVersion(&version_), "ncclGetVersion");
    if (version_ / 100 != kBuilt / 100) {
      fail("Weft was built for NCCL {}, but {} is loaded; build it against that one, or set LD_LIBRARY_PATH",
           version_text(kBuilt), version_text(version_));
    }
    const cudaError_t error = cudaSetDevice(options.device);
    if (error != cudaSuccess) fail("GPU {} cannot be used: {}", options.device, cudaGetErrorString(error));
    cuda_check(load_kernels(), "loading kernels");
    // Otherwise the first call of every kind waits for its peers to connect, and two communicators for each other where
    // ranks start their queues in different orders. Whoever wants it otherwise may say so.
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  }

  ~Links() override {
    if (!aborted_ && !end_together()) abort("");
    for (std::byte* const memory : memory_) (void)cudaFree(memory);
  }

  std::string version() override { return version_text(version_); }

  std::string make_identity() override {
    ncclUniqueId id;
    nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    return {id.internal, sizeof(id.internal)};
  }

  void join(const std::string& identity) override {
    ncclUniqueId id;
    if (identity.size() != sizeof(id.internal)) throw RunFailed("rank 0 told no identity of NCCL's");
    std::memcpy(id.internal, identity.data(), identity.size());
    use_device();
    // Only others are split from it, so it needs no more than one thread block and its buffers.
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = config.maxCTAs = 1;
    Member& world = comms_.emplace_back();
    world.words = "all ranks";
    locked("ncclCommInitRankConfig", world, [&] {
      return ncclCommInitRankConfig(&world.comm, static_cast<int>(options_.ranks), id, static_cast<int>(options_.rank),
                                    &config);
    });
    settle(world);
  }

  std::int64_t split(int color, int position, int thread_blocks, const std::string& words) override {
    use_device();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    // Its calls only enqueue, so they may block. Otherwise NCCL starts a thread for each, which takes 70 us on an H200.
    config.blocking = 1;
    if (thread_blocks > 0) config.minCTAs = config.maxCTAs = thread_blocks;
    Member& world = comms_.front();
    Member* member = nullptr;
    {
      const std::lock_guard lock(mutex_);
      member = &comms_.emplace_back();  // NCCL writes to it later: it must stay where it is
      member->words = words;
    }
    locked("ncclCommSplit", world, [&] {
      return ncclCommSplit(world.comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color, position, &member->comm, &config);
    });
    settle(world);
    if (color < 0) {
      const std::lock_guard lock(mutex_);
      comms_.pop_back();
      return -1;
    }
    settle(*member);
    return std::ssize(comms_) - 1;
  }

  void connect_pairs(std::int64_t communicator, int members) override {
    std::byte* const bytes = allocate(2 * members);
    int self = 0;
    nccl_check(ncclCommUserRank(comms_[communicator].comm, &self), "ncclCommUserRank");
    std::vector<NcclCall> calls;
    for (int peer = 0; peer < members; ++peer) {
      if (peer == self) continue;
      calls.push_back({NcclCall::Kind::send, bytes + peer, nullptr, 1, peer});
      calls.push_back({NcclCall::Kind::receive, nullptr, bytes + members + peer, 1, peer});
    }
    if (calls.empty()) return;
    const OwnStream own;
    enqueue(comms_[communicator], ncclUint8, ncclSum, calls, own.stream);
    wait_until(options_.timeout, "messages between " + comms_[communicator].words, [&]() -> bool {
      const cudaError_t state = cudaStreamQuery(own.stream);
      if (state != cudaErrorNotReady) cuda_check(state, "cudaStreamQuery");
      if (const std::string words = failure(); !words.empty()) throw RunFailed(words);
      return state == cudaSuccess;
    });
  }

  std::byte* allocate(std::int64_t bytes) override {
    use_device();
    void* memory = nullptr;
    cuda_check(cudaMalloc(&memory, static_cast<std::size_t>(bytes)), fmt::format("cudaMalloc of {} bytes", bytes));
    memory_.push_back(static_cast<std::byte*>(memory));
    return memory_.back();
  }

  void copy(std::span<const DeviceCopy> copies, void* stream) override {
    use_device();
    cuda_check(copy_places(copies, static_cast<cudaStream_t>(stream)), "copying segments together");
  }

  void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void* stream) override {
    use_device();
    cuda_check(reduce_places(how, sums, static_cast<cudaStream_t>(stream)), "adding up");
  }

  void run(std::int64_t communicator, const PreparedCall& call, std::span<const NcclCall> calls,
           void* stream) override {
    if (calls.empty()) return;
    use_device();
    enqueue(comms_[communicator], type_of(call.type), op_of(call.op), calls, static_cast<cudaStream_t>(stream));
  }

  // Between two and four ranks over sockets 12 calls of 64 KiB took 1.6 to 3 times as long as one of all their bytes,
  // 12 of 256 KiB 1.4 to 1.9 times, and copies nothing that could be seen. From 2 MiB on the difference was 0 to 13 %.
  std::int64_t least_bytes_of_a_call() const override { return 4 << 20; }
  bool needs_rehearsal() const override { return false; }
  bool can_be_recorded() const override { return true; }

  std::string failure() override {
    const std::lock_guard lock(mutex_);
    if (aborted_) return {};
    for (const Member& member : comms_) {
      ncclResult_t state = ncclSuccess;
      if (member.comm == nullptr) continue;
      if (is_fine(ncclCommGetAsyncError(member.comm, &state)) && is_fine(state)) continue;
      return fmt::format("NCCL among {}: {}", member.words, in_words(state, member.comm));
    }
    return {};
  }

  // As a group: all are told to stop before one is waited for, since one's kernels may stand behind another's.
  void abort(const std::string& /*why*/) override {
    if (aborted_.exchange(true)) return;
    const std::lock_guard lock(mutex_);
    (void)cudaSetDevice(options_.device);
    (void)ncclGroupStart();
    for (const Member& member : comms_) {
      if (member.comm != nullptr) (void)ncclCommAbort(member.comm);
    }
    (void)ncclGroupEnd();
    for (Member& member : comms_) member.comm = nullptr;
  }

 private:
  struct Member {
    ncclComm_t comm = nullptr;
    std::string words;  // whose it is
  };

  // A thread has a current device of its own.
  void use_device() const { cuda_check(cudaSetDevice(options_.device), "cudaSetDevice"); }

  void require_not_aborted() const {
    if (aborted_) throw RunFailed("NCCL's communicators were aborted");
  }

  // Calls on communicators and abort() take turns.
  void locked(std::string_view call, const Member& member, const std::function<ncclResult_t()>& body) {
    const std::lock_guard lock(mutex_);
    require_not_aborted();
    nccl_check(body(), call, member.words, member.comm);
  }

  // Sleeps longer the longer it takes.
  void wait_until(std::chrono::seconds limit, const std::string& what, const std::function<bool()>& is_over) const {
    const Clock::time_point deadline = Clock::now() + limit;
    for (int times = 0; !is_over(); ++times) {
      require_not_aborted();
      if (Clock::now() > deadline) {
        throw RunFailed(fmt::format("{}: NCCL has not got ready within {} s", what, limit.count()));
      }
      if (times < 100) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(times < 1000 ? 20 : 1000));
      }
    }
  }

  // Until the last call on a communicator has been carried out by NCCL's own threads.
  void settle(const Member& member) { settle(member, options_.timeout); }
  void settle(const Member& member, std::chrono::seconds limit) {
    wait_until(limit, "communicator of " + member.words, [&] {
      const std::lock_guard lock(mutex_);
      require_not_aborted();
      if (member.comm == nullptr) return false;
      ncclResult_t state = ncclSuccess;
      nccl_check(ncclCommGetAsyncError(member.comm, &state), "ncclCommGetAsyncError", member.words, member.comm);
      nccl_check(state, "NCCL", member.words, member.comm);
      return state == ncclSuccess;
    });
  }

  static ncclResult_t call_one(const NcclCall& call, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    const auto count = static_cast<std::size_t>(call.elements);
    switch (call.kind) {
      case NcclCall::Kind::all_reduce:
        return ncclAllReduce(call.src, call.dst, count, type, op, comm, stream);
      case NcclCall::Kind::all_gather:
        return ncclAllGather(call.src, call.dst, count, type, comm, stream);
      case NcclCall::Kind::reduce_scatter:
        return ncclReduceScatter(call.src, call.dst, count, type, op, comm, stream);
      case NcclCall::Kind::broadcast:
        return ncclBroadcast(call.src, call.dst, count, type, call.peer, comm, stream);
      case NcclCall::Kind::reduce:
        return ncclReduce(call.src, call.dst, count, type, op, call.peer, comm, stream);
      case NcclCall::Kind::send:
        return ncclSend(call.src, count, type, call.peer, comm, stream);
      case NcclCall::Kind::receive:
        return ncclRecv(call.dst, count, type, call.peer, comm, stream);
    }
    return ncclInvalidArgument;
  }

  // A group that was begun is ended, also where a call in it fails.
  void enqueue(const Member& member, ncclDataType_t type, ncclRedOp_t op, std::span<const NcclCall> calls,
               cudaStream_t stream) {
    locked("a group of NCCL calls", member, [&] {
      ncclResult_t result = ncclGroupStart();
      for (const NcclCall& call : calls) {
        if (is_fine(result)) result = call_one(call, type, op, member.comm, stream);
      }
      const ncclResult_t end = ncclGroupEnd();
      return is_fine(result) ? end : result;
    });
    settle(member);
  }

  // All ranks end their communicators alike. False where one of them fails or takes long.
  bool end_together() {
    try {
      use_device();
      while (!comms_.empty()) {
        const Member& member = comms_.back();
        locked("ncclCommFinalize", member, [&] { return ncclCommFinalize(member.comm); });
        settle(member, kTimeToEnd);
        const std::lock_guard lock(mutex_);
        (void)ncclCommDestroy(member.comm);
        comms_.pop_back();
      }
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  NcclOptions options_;
  int version_ = 0;
  std::mutex mutex_;  // of what is done with communicators
  std::atomic<bool> aborted_ = false;
  std::deque<Member> comms_;  // the world first
  std::vector<std::byte*> memory_;
};

}  // namespace
}  // namespace weft::nccl

extern "C" __attribute__((visibility("default"))) weft::NcclLinks* weft_make_nccl_links(
    const weft::NcclOptions& options) {
  return new weft::nccl::Links(options);
}
