// The backend "weft" of torch.distributed: its collectives by Weft's programs over TCP, for tensors in a processor's
// memory; those of a GPU pass through it. It compiles against PyTorch 1.13, where a backend is a ProcessGroup, and
// against 2.x, where it is a Backend.
#pragma once

#include <torch/version.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "calls.hpp"

namespace weft_c10d {

#if TORCH_VERSION_MAJOR >= 2
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif

class WeftProcessGroup : public BackendBase {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  WeftProcessGroup(c10::intrusive_ptr<c10d::Store> store, const Joining& joining);
  ~WeftProcessGroup() override;
  void leave() { calls_.leave(); }

  const std::string getBackendName() const override { return "weft"; }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int receiver, int tag) override;
  WorkPtr recv(Tensors& tensors, int sender, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
#if TORCH_VERSION_MAJOR >= 2
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  void startCoalescing() override;
  WorkPtr endCoalescing() override;
  // Virtual in newer versions of 2.x, and not there in older ones, so without `override`.
  void shutdown() { leave(); }
  void abort() { leave(); }
#endif
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 6)
  c10::intrusive_ptr<Options> getBackendOptions() { return c10::make_intrusive<Options>(getBackendName(), timeout_); }
#endif

 private:
  using Pointer = c10::intrusive_ptr<WeftWork>;
  Pointer begin(c10d::OpType type, const char* title, Tensors outputs);
  WorkPtr finished(const Pointer& work);
  void run(const Pointer& work, CallKind kind, const Tensors& inputs, const Tensors& outputs);
  void all_reduce(const Pointer& work, const Tensors& tensors, c10d::ReduceOp::RedOpType op);
  void all_gather(const Pointer& work, const Tensors& inputs, const Tensors& outputs);
  void reduce_scatter(const Pointer& work, const Tensors& inputs, const at::Tensor& output,
                      c10d::ReduceOp::RedOpType op);
  void message(const Pointer& work, const at::Tensor& tensor, int sender, int receiver, int tag);
  void all_to_all(const Pointer& work, const Tensors& inputs, const Tensors& outputs);
  std::int64_t queue_of(int sender, int receiver, int tag);
  bool is_at_own_place(const WeftSegment& input, const std::vector<WeftSegment>& outputs) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::chrono::milliseconds timeout_;
  Calls calls_;
  std::mutex queues_mutex_;
  std::map<std::tuple<int, int, int>, std::int64_t> queues_;  // of messages by sender, receiver and tag
  std::atomic<std::uint64_t> sequence_{0};
  bool coalesces_ = false;
  std::vector<Pointer> coalesced_;
};

}  // namespace weft_c10d
