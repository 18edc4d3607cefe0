// What a module of kernels implements and hands over. libtorch takes more than a second to load, so it is linked to a
// module of its own that is opened when kernels are first asked for; whoever only plans never waits for it.
#pragma once

#include "kernels/kernels.hpp"

namespace weft {

// Sizes have been checked already.
class KernelBackend : public Kernels {
 public:
  // Called before every kernel, on the thread that calls it: for what libraries keep by thread, such as the number of
  // their threads.
  virtual void enter() = 0;
  // Slots are data, but a kernel must never write beyond its buffer. False where `routing` names a slot that is not
  // among so many.
  virtual bool routing_fits(const Matrix& routing, std::int64_t slots) = 0;
};

struct KernelFactory {
  const char* in_words;
  KernelBackend* (*make)(const KernelOptions& options);  // the caller owns it
};

// extern "C" const KernelFactory* weft_kernel_factory()
inline constexpr const char* kKernelFactorySymbol = "weft_kernel_factory";

}  // namespace weft
