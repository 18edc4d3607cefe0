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
  BoundOperation(Calls compute, KernelCalls read_results = {}) {
    pieces_.push_back({std::move(compute), std::move(read_results)});
  }

  // Calls the kernels, waits until they have ended (others read the memory that they wrote from then on) and reads what
  // they left for the host. Throws RunFailed where that is not finite.
  void run(Kernels& kernels, std::int64_t step) const;
  // Does the same in two steps, for a device that goes on meanwhile: its kernels are called, and when they have ended,
  // what they left is read.
  void enqueue(Kernels& kernels, std::int64_t step) const;
  void read_results(Kernels& kernels, std::int64_t step) const;
  // Makes one operation of several, in their order.
  static BoundOperation join(std::vector<BoundOperation> operations);
  // What it was joined from, for whoever calls the kernels of some of them only.
  std::size_t pieces() const { return pieces_.size(); }
  void enqueue_piece(std::size_t piece, Kernels& kernels, std::int64_t step) const {
    pieces_[piece].compute(kernels, step);
  }

 private:
  struct Piece {
    KernelCalls compute, read_results;
  };
  std::vector<Piece> pieces_;
};

}  // namespace weft
