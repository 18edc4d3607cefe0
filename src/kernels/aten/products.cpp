// The one source that includes ATen (seven seconds to compile).
#include "kernels/aten/products.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/aten/kernels_aten.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {

void use_threads(int threads) {
  at::set_num_threads(threads);
  use_loop_threads(threads);
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

}  // namespace weft::aten
