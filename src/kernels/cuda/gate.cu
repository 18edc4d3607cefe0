// The gate of a mixture of experts: a thread for every token chooses, then a thread for every expert gives its slots in
// the order that the shape says.
#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

// Softmax of a row of scores, into `probabilities`.
__device__ void softmax(const Operand& scores, std::int64_t row, std::int64_t count, float* probabilities) {
  float largest = load_one(scores, row, 0), sum = 0;
  for (std::int64_t e = 1; e < count; ++e) largest = fmaxf(largest, load_one(scores, row, e));
  for (std::int64_t e = 0; e < count; ++e) sum += probabilities[e] = expf(load_one(scores, row, e) - largest);
  const float inverse = 1.0F / sum;
  for (std::int64_t e = 0; e < count; ++e) probabilities[e] *= inverse;
}

__device__ bool contains(const int* chosen, std::int64_t count, std::int64_t expert) {
  for (std::int64_t j = 0; j < count; ++j)
    if (chosen[j] == expert) return true;
  return false;
}

// The largest scores, descending; of equal ones the first. Scores that are no numbers still give experts that differ.
__device__ void choose(const Operand& scores, std::int64_t row, std::int64_t experts, std::int64_t wanted,
                       int* chosen) {
  for (std::int64_t j = 0; j < wanted; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < experts; ++e) {
      if (best >= 0 && !(load_one(scores, row, e) > load_one(scores, row, best))) continue;
      if (!contains(chosen, j, e)) best = e;
    }
    chosen[j] = static_cast<int>(best);
  }
}

// What a token's turn depends on; an order of NaN would be none.
__device__ float priority_of(const float* probabilities, const int* chosen, std::int64_t token,
                             const GateShape& shape) {
  const float p = probabilities[token * shape.experts + chosen[token * shape.top_k]];
  return p >= 0 ? p : -1.0F;
}

// Choices in the order in which they are given slots: [turn] -> token * top_k + choice.
__global__ void order_kernel(GateShape shape, std::int64_t tokens, const float* probabilities, const int* chosen,
                             int* order) {
  const std::int64_t token = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  std::int64_t rank = token;
  if (shape.order == SlotOrder::priority) {
    const float own = priority_of(probabilities, chosen, token, shape);
    rank = 0;
    for (std::int64_t other = 0; other < tokens; ++other) {
      const float its = priority_of(probabilities, chosen, other, shape);
      if (its > own || (its == own && other < token)) ++rank;
    }
  }
  for (std::int64_t j = 0; j < shape.top_k; ++j) {
    const std::int64_t turn = shape.order == SlotOrder::token ? token * shape.top_k + j : j * tokens + rank;
    order[turn] = static_cast<int>(token * shape.top_k + j);
  }
}

// Each thread has an expert and reads all choices, a block of them at a time from shared memory.
__global__ void slots_kernel(GateShape shape, std::int64_t choices, const int* chosen, const int* order,
                             Operand routing, float* load, bool adds) {
  __shared__ int turns[kThreads], wanted[kThreads];
  const std::int64_t expert = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  std::int64_t taken = adds && expert < shape.experts ? static_cast<std::int64_t>(load[expert]) : 0;
  const bool own_slots = shape.capacity_of_calls > 0;
  const std::int64_t first = own_slots ? taken : 0, in_all = own_slots ? shape.capacity_of_calls : shape.capacity;
  for (std::int64_t begin = 0; begin < choices; begin += kThreads) {
    __syncthreads();
    if (begin + threadIdx.x < choices) {
      turns[threadIdx.x] = order[begin + threadIdx.x];
      wanted[threadIdx.x] = chosen[turns[threadIdx.x]];
    }
    __syncthreads();
    if (expert >= shape.experts) continue;
    for (int i = 0; i < kThreads && begin + i < choices; ++i) {
      if (wanted[i] != expert) continue;
      const bool has_slot = taken < in_all && taken - first < shape.capacity;
      const std::int64_t slot = has_slot ? expert * shape.capacity + taken - first : -1 - expert;
      store_one(routing, turns[i] / shape.top_k, turns[i] % shape.top_k, static_cast<float>(slot));
      ++taken;
    }
  }
  if (expert < shape.experts) load[expert] = static_cast<float>(taken);
}

}  // namespace

void CudaKernels::gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
                       Into into) {
  WEFT_CHECK(routing.data.type == ElementType::fp32);  // bf16 cannot tell slots apart
  const std::int64_t tokens = scores.rows, choices = tokens * shape.top_k;
  float* const probabilities = context_.scratch<float>(Scratch::row_values, tokens * shape.experts + 1);
  int* const chosen = context_.scratch<int>(Scratch::order, 2 * choices + 1);
  const Operand in = operand(scores), out = operand(routing);
  for_chunks(context_, {tokens, 1}, [=] __device__(std::int64_t row, std::int64_t, int) {
    float* const p = probabilities + row * shape.experts;
    int* const experts = chosen + row * shape.top_k;
    softmax(in, row, shape.experts, p);
    choose(in, row, shape.experts, shape.top_k, experts);
    float sum = 0;
    for (std::int64_t j = 0; j < shape.top_k; ++j) sum += p[experts[j]];
    for (std::int64_t j = 0; j < shape.top_k; ++j)
      store_one(out, row, shape.top_k + j, shape.renormalise ? p[experts[j]] / sum : p[experts[j]]);
  });
  sum_rows(context_, Matrix::dense(probabilities, tokens, shape.experts), load.probabilities, into);
  int* const order = chosen + choices;
  if (tokens > 0)
    order_kernel<<<static_cast<unsigned>(ceil_div(tokens, kThreads)), kThreads, 0, context_.current_stream()>>>(
        shape, tokens, probabilities, chosen, order);
  slots_kernel<<<static_cast<unsigned>(ceil_div(shape.experts, kThreads)), kThreads, 0, context_.current_stream()>>>(
      shape, choices, chosen, order, out, floats(load.choices), into == Into::add);
  check(cudaGetLastError(), "giving slots");
}

// A probability's gradient g comes from its weight, through w = p / (sum of the chosen), and from the balance loss.
// That of its score is p (g - the mean of g under p).
void CudaKernels::gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                                  const Matrix& scores, const Matrix& routing, const GateLoad& load,
                                  const Matrix& d_scores) {
  const std::int64_t k = shape.top_k, experts = shape.experts;
  const auto tokens = static_cast<double>(balance.tokens);
  const auto of_choice = static_cast<float>(balance.coefficient * static_cast<double>(experts) /
                                            (tokens * tokens * static_cast<double>(k)));
  float* const scratch = context_.scratch<float>(Scratch::row_values, 2 * scores.rows * experts + 1);
  const Operand in = operand(scores), slots = operand(routing), dw = operand(d_weights), out = operand(d_scores);
  const float* const choices = floats(load.choices);
  for_chunks(context_, {scores.rows, 1}, [=] __device__(std::int64_t row, std::int64_t, int) {
    float *const p = scratch + 2 * row * experts, *const g = p + experts;
    softmax(in, row, experts, p);
    for (std::int64_t e = 0; e < experts; ++e) g[e] = of_choice * choices[e];
    const auto expert = [&](std::int64_t j) {
      const auto slot = static_cast<std::int64_t>(load_one(slots, row, j));
      return slot >= 0 ? slot / shape.capacity : -1 - slot;
    };
    float sum = 1, mean = 0;
    if (shape.renormalise) {
      sum = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        sum += p[expert(j)];
        mean += load_one(dw, row, j) * load_one(slots, row, k + j);
      }
    }
    for (std::int64_t j = 0; j < k; ++j) g[expert(j)] += (load_one(dw, row, j) - mean) / sum;
    float inner = 0;
    for (std::int64_t e = 0; e < experts; ++e) inner += p[e] * g[e];
    for (std::int64_t e = 0; e < experts; ++e) store_one(out, row, e, p[e] * (g[e] - inner));
  });
}

}  // namespace weft::cuda
