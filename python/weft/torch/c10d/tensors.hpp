// Tensors as the memory that Weft's calls read and write, and reductions that Weft's programs do not have.
#pragma once

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "calls.hpp"

namespace weft_c10d {

using ReduceOpType = c10d::ReduceOp::RedOpType;

// Throws std::invalid_argument, which Python sees as ValueError, where Weft cannot carry the tensor.
void require_dense(const at::Tensor& tensor, const char* what);
void require_one(const std::vector<at::Tensor>& tensors, const char* what);
// All of one type.
void require_same_type(const std::vector<at::Tensor>& tensors, const char* what);
void require_rank(std::int64_t rank, std::int64_t ranks, const char* what);

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors);
std::int64_t elements_of(const std::vector<at::Tensor>& tensors);

// What a call does with a tensor.
enum class Use { kRead, kWrite, kReadAndWrite };
// A contiguous tensor in a processor's memory with the same elements: itself, or a copy. `work` keeps it, and copies
// what the call has written back.
at::Tensor flat(const at::Tensor& tensor, WeftWork& work, Use use);
std::vector<WeftSegment> segments_of(const std::vector<at::Tensor>& tensors);
bool overlap(const WeftSegment& one, const WeftSegment& other);
// Parts of a contiguous tensor along its first dimension, as views.
std::vector<at::Tensor> cut_at(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes);

struct NativeReduction {
  WeftType type = weft_fp32;
  WeftOp op = weft_sum;
};
// None where Weft's programs cannot reduce so: then all contributions travel, and reduce_rows reduces them.
std::optional<NativeReduction> native_reduction(at::ScalarType type, ReduceOpType op);
// Row 0 with all other rows, in their order.
at::Tensor reduce_rows(const at::Tensor& rows, ReduceOpType op);

}  // namespace weft_c10d
