#include "tensors.hpp"

#include <stdexcept>
#include <string>

namespace weft_c10d {
namespace {

[[noreturn]] void refuse(const char* what, const std::string& why) {
  throw std::invalid_argument(std::string("weft: ") + what + ": " + why);
}

void reduce_into(at::Tensor& sum, const at::Tensor& row, ReduceOpType op) {
  switch (op) {
    case ReduceOpType::SUM:
    case ReduceOpType::AVG:
      sum.add_(row);
      return;
    case ReduceOpType::PRODUCT:
      sum.mul_(row);
      return;
    case ReduceOpType::MIN:
      sum = at::minimum(sum, row);
      return;
    case ReduceOpType::MAX:
      sum = at::maximum(sum, row);
      return;
    case ReduceOpType::BAND:
      sum.bitwise_and_(row);
      return;
    case ReduceOpType::BOR:
      sum.bitwise_or_(row);
      return;
    case ReduceOpType::BXOR:
      sum.bitwise_xor_(row);
      return;
    default:
      refuse("reduction", "PREMUL_SUM is NCCL's own");
  }
}

}  // namespace

void require_dense(const at::Tensor& tensor, const char* what) {
  if (!tensor.defined()) refuse(what, "a tensor is missing");
  if (tensor.layout() != at::kStrided) refuse(what, "a sparse tensor; dense ones can travel");
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda()) {
    refuse(what, "a tensor on " + tensor.device().str() + "; those of processors and of CUDA devices can travel");
  }
}

void require_one(const std::vector<at::Tensor>& tensors, const char* what) {
  if (tensors.size() != 1) refuse(what, std::to_string(tensors.size()) + " tensors; 1 is allowed");
  require_dense(tensors[0], what);
}

void require_same_type(const std::vector<at::Tensor>& tensors, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    require_dense(tensor, what);
    if (tensor.scalar_type() != tensors[0].scalar_type()) {
      refuse(what, std::string("tensors of ") + c10::toString(tensor.scalar_type()) + " and of " +
                       c10::toString(tensors[0].scalar_type()) + " in one call");
    }
  }
}

void require_rank(std::int64_t rank, std::int64_t ranks, const char* what) {
  if (rank < 0 || rank >= ranks)
    refuse(what, "rank " + std::to_string(rank) + " is not in 0.." + std::to_string(ranks - 1));
}

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
  return sum;
}

std::int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.numel();
  return sum;
}

// Copies from and to a GPU's memory wait for it: whoever called has the GPU's results, and sees ours.
at::Tensor flat(const at::Tensor& tensor, WeftWork& work, Use use) {
  const at::Tensor plain = tensor.detach();
  at::Tensor result = plain;
  if (!plain.device().is_cpu() || !plain.is_contiguous()) {
    const auto options = plain.options().device(at::kCPU);
    result = use == Use::kWrite ? at::empty(plain.sizes(), options) : plain.to(at::kCPU).contiguous();
    if (use != Use::kRead) work.then([plain, result] { plain.copy_(result); });
  }
  work.keep(result);
  return result;
}

std::vector<WeftSegment> segments_of(const std::vector<at::Tensor>& tensors) {
  std::vector<WeftSegment> segments;
  for (const at::Tensor& tensor : tensors) {
    segments.push_back({tensor.data_ptr(), tensor.numel() * static_cast<std::int64_t>(tensor.element_size())});
  }
  return segments;
}

bool overlap(const WeftSegment& one, const WeftSegment& other) {
  const auto begin = [](const WeftSegment& segment) { return reinterpret_cast<std::uintptr_t>(segment.data); };
  const auto end = [&](const WeftSegment& segment) {
    return begin(segment) + static_cast<std::uintptr_t>(segment.bytes);
  };
  return begin(one) < end(other) && begin(other) < end(one);
}

std::vector<at::Tensor> cut_at(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes) {
  std::vector<at::Tensor> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    parts.push_back(tensor.narrow(0, begin, size));
    begin += size;
  }
  return parts;
}

std::optional<NativeReduction> native_reduction(at::ScalarType type, ReduceOpType op) {
  NativeReduction result;
  switch (type) {
    case at::kFloat:
      result.type = weft_fp32;
      break;
    case at::kBFloat16:
      result.type = weft_bf16;
      break;
    case at::kHalf:
      result.type = weft_fp16;
      break;
    case at::kInt:
      result.type = weft_i32;
      break;
    case at::kLong:
      result.type = weft_i64;
      break;
    default:
      return std::nullopt;
  }
  switch (op) {
    case ReduceOpType::SUM:
      result.op = weft_sum;
      break;
    case ReduceOpType::AVG:
      result.op = weft_average;
      break;
    case ReduceOpType::MAX:
      result.op = weft_max;
      break;
    case ReduceOpType::MIN:
      result.op = weft_min;
      break;
    default:
      return std::nullopt;
  }
  return result;
}

at::Tensor reduce_rows(const at::Tensor& rows, ReduceOpType op) {
  at::Tensor sum = rows[0].clone();
  for (std::int64_t row = 1; row < rows.size(0); ++row) reduce_into(sum, rows[row], op);
  if (op != ReduceOpType::AVG) return sum;
  return at::isIntegralType(sum.scalar_type(), true) ? at::div(sum, rows.size(0), "trunc") : sum.div_(rows.size(0));
}

}  // namespace weft_c10d
