// What a module of kernels implements. libtorch takes more than a second to load, so it is linked to a module of its
// own that is opened when kernels are first needed; commands that only plan never wait for it.
#pragma once

#include "kernels/kernels.hpp"

namespace weft {

// Sizes have been checked already.
class KernelBackend : public Kernels {
 public:
  // Called before every kernel on the thread that calls it, for settings that libraries keep per thread, such as the
  // number of their threads.
  virtual void enter() = 0;
  // Returns false where `routing` names a slot beyond this number: slots are data, but no kernel may write beyond its
  // buffer.
  virtual bool routing_fits(const Matrix& routing, std::int64_t slots) = 0;
  // Returns whether it has kernels for these. Where it has none, its memory is this processor's, and
  // kernels/encode_on_host.hpp and compress/low_rank.hpp do it.
  virtual bool encodes() const { return false; }
  void encode(const Vector&, const Vector&, const EncodingDraw&, const EncodedShards&, EncodedSquares*) override {}
  void decode_sum(const EncodedShards&, std::int64_t, const Vector&, Into) override {}
  void make_orthonormal(const Matrix&, std::uint64_t) override {}
  void left_factor(const Matrix&, const Matrix&, const Matrix&, const Matrix&) override {}
  void right_factor(const Matrix&, const Matrix&, const Matrix&, const Matrix&) override {}
  void factor_product(const Matrix&, const Matrix&, std::int64_t, const Matrix&, const Matrix&,
                      EncodedSquares&) override {}
};

struct KernelFactory {
  const char* in_words;
  KernelBackend* (*make)(const KernelOptions& options);  // the caller owns it
};

// extern "C" const KernelFactory* weft_kernel_factory()
inline constexpr const char* kKernelFactorySymbol = "weft_kernel_factory";

}  // namespace weft
