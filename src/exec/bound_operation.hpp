// An operation of the plan, bound to a rank's memory and ready to be carried out by its kernels step after step.
#pragma once

#include <concepts>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"

namespace weft {

// Calls kernels, which may end after this has returned.
using KernelCalls = std::function<void(Kernels& kernels, std::int64_t step)>;

class BoundOperation {
 public:
  BoundOperation() = default;
  template <std::invocable<Kernels&, std::int64_t> Calls>
  BoundOperation(Calls compute, KernelCalls read_results = {})
      : compute_(std::move(compute)), read_results_(std::move(read_results)) {}

  // Calls the kernels, waits until they have ended (others read the memory that they wrote from then on) and reads what
  // they left for the host. Throws RunFailed where that is not finite.
  void run(Kernels& kernels, std::int64_t step) const;
  // The same in two steps, for a device that goes on meanwhile: its kernels are called, and when they have ended, what
  // they left is read.
  void enqueue(Kernels& kernels, std::int64_t step) const { compute_(kernels, step); }
  void read_results(Kernels& kernels, std::int64_t step) const {
    if (read_results_) read_results_(kernels, step);
  }
  // One operation of several, in their order.
  static BoundOperation join(std::vector<BoundOperation> pieces);

 private:
  KernelCalls compute_, read_results_;
};

}  // namespace weft
