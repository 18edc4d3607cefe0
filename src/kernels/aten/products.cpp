// The one source that includes ATen (seven seconds to compile).
#include "kernels/aten/products.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {

// OpenMP keeps its number of threads per calling thread.
void AtenKernels::enter() {
  thread_local int used = 0;
  if (used == threads_) return;
  at::set_num_threads(threads_);
  use_loop_threads(threads_);
  used = threads_;
}

namespace {

at::Tensor tensor_of(const Matrix& x, Turned turned = Turned::no) {
  const std::int64_t stride = x.row_stride.value / size_of(x.data.type).value;
  if (turned == Turned::yes) return at::from_blob(x.data.address, {x.columns, x.rows}, {1, stride}, at::kFloat);
  return at::from_blob(x.data.address, {x.rows, x.columns}, {stride, 1}, at::kFloat);
}

}  // namespace

void multiply(const Factor& a, const Factor& b, const Matrix& out, Into into, double scale) {
  const c10::InferenceMode without_autograd;
  at::Tensor result = tensor_of(out);
  at::addmm_out(result, result, tensor_of(a.matrix, a.turned), tensor_of(b.matrix, b.turned), into == Into::add ? 1 : 0,
                scale);
}

bool invert_symmetric(const Matrix& x) {
  const c10::InferenceMode without_autograd;
  at::Tensor values = tensor_of(x);
  const auto [triangle, failed] = at::linalg_cholesky_ex(values);
  if (failed.item<int>() != 0) return false;
  values.copy_(at::cholesky_inverse(triangle));
  return true;
}

}  // namespace weft::aten
