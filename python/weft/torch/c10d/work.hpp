// One operation that PyTorch waits for: one or several calls of Weft's, and what is to be done when they have ended.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace weft_c10d {

class WeftWork : public c10d::Work {
 public:
  WeftWork(int rank, c10d::OpType type, const char* title, std::vector<at::Tensor> outputs)
      : Work(rank, type, title),
        outputs_(std::move(outputs)),
        gpu_(gpu_of(outputs_)),
        future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            gpu_ ? std::vector<c10::Device>{*gpu_} : std::vector<c10::Device>{})) {
    wait_for_gpu();  // which may still use what the call will write
  }

  std::vector<at::Tensor> result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  // The memory of a call must live until the call has ended.
  void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
  // Done on the completion thread, in the order given, when all calls have ended.
  void then(std::function<void()> job) { jobs_.push_back(std::move(job)); }
  void add_call() { ++left_; }
  // A call has ended, or, once, all have been added. The last one completes the work.
  void call_ended() {
    if (--left_ == 0) complete();
  }
  void fail(const std::exception_ptr& error) {
    if (is_over_.exchange(true)) return;
    future_->setError(error);
    finish(error);
  }

 private:
  static std::optional<c10::Device> gpu_of(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (tensor.defined() && !tensor.device().is_cpu()) return tensor.device();
    }
    return std::nullopt;
  }

  // For what this thread has given the GPU to do. Without CUDA's headers, so that one source serves all builds of
  // PyTorch.
  void wait_for_gpu() const {
    if (gpu_) c10::impl::VirtualGuardImpl(gpu_->type()).getStream(*gpu_).synchronize();
  }

  void complete() {
    try {
      const at::NoGradGuard no_grad;
      for (const std::function<void()>& job : jobs_) job();
      wait_for_gpu();
    } catch (...) {
      return fail(std::current_exception());
    }
    if (is_over_.exchange(true)) return;
    jobs_.clear();
    kept_.clear();
    future_->markCompleted(at::IValue(outputs_));
    finish();
  }

  std::vector<at::Tensor> outputs_, kept_;
  std::optional<c10::Device> gpu_;  // on which outputs are
  std::vector<std::function<void()>> jobs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<int> left_{1};  // one for the caller, until it has added all calls
  std::atomic<bool> is_over_{false};
};

}  // namespace weft_c10d
