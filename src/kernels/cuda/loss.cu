// Cross entropy over rows of logits. Probabilities may lie where the logits do: a thread reads a chunk before it writes
// it, and what a row's target needs is read before anything is written.
#include <cfloat>
#include <vector>

#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

// The largest logit of a row, and the sum of exp(logit - largest).
struct RowSum {
  float largest, sum;
};

// One pass: the sum is scaled down whenever a larger logit comes. At least `floor`, so that logits that are all -inf
// give no NaN.
__device__ RowSum sum_of_row(const Operand& logits, std::int64_t row, std::int64_t columns, float floor) {
  float largest = floor, sum = 0;
  for (std::int64_t column = threadIdx.x * kChunk; column < columns; column += blockDim.x * kChunk) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), columns - column));
    const Values a = load(logits, row, column, count);
    float highest = largest;
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i < count) highest = fmaxf(highest, a.v[i]);
    if (highest > largest) {
      sum *= largest == -INFINITY ? 0.0F : expf(largest - highest);
      largest = highest;
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i)
      if (i < count) sum += expf(a.v[i] - largest);
  }
  const float all = block_max(largest);
  return {all, block_sum(largest == -INFINITY && all != -INFINITY ? 0.0F : sum * expf(largest - all))};
}

__device__ void write_probabilities(const Operand& logits, std::int64_t row, std::int64_t vocab, std::int64_t columns,
                                    float largest, float inverse, const Operand& out) {
  for (std::int64_t column = threadIdx.x * kChunk; column < columns; column += blockDim.x * kChunk) {
    const int count = static_cast<int>(min(static_cast<std::int64_t>(kChunk), columns - column));
    Values a = load(logits, row, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) a.v[i] = column + i < vocab ? expf(a.v[i] - largest) * inverse : 0.0F;
    store(out, row, column, a, count);
  }
}

// One block, so that the order of the sum is fixed.
__global__ void sum_losses_kernel(const double* losses, std::int64_t count, double* result) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += losses[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = sum;
}
void sum_losses(Context& context, const double* losses, std::int64_t count, double& wanted) {
  sum_losses_kernel<<<1, 1024, 0, context.current_stream()>>>(losses, count, context.results().ask_for(wanted));
  check(cudaGetLastError(), "summing losses");
}

// The parts of all ranks, on the device.
struct PartPointers {
  const float *largest, *sum, *target;
};
struct Joined {
  float largest;
  double sum, target;
};
__device__ Joined join(const PartPointers* parts, std::int64_t count, std::int64_t token) {
  Joined all{parts[0].largest[token], 0, 0};
  for (std::int64_t i = 1; i < count; ++i) all.largest = fmaxf(all.largest, parts[i].largest[token]);
  for (std::int64_t i = 0; i < count; ++i) {
    all.sum +=
        static_cast<double>(parts[i].sum[token]) * static_cast<double>(expf(parts[i].largest[token] - all.largest));
    all.target += static_cast<double>(parts[i].target[token]);
  }
  return all;
}

// In place only element by element.
void check_places(const Matrix& logits, const Matrix& probabilities) {
  WEFT_CHECK(logits.data.address != probabilities.data.address || logits.data.type == probabilities.data.type);
}

}  // namespace

void CudaKernels::cross_entropy(const Matrix& logits, Tokens targets, std::int64_t vocab, const Matrix& probabilities,
                                double& loss) {
  check_places(logits, probabilities);
  const Operand in = operand(logits), out = operand(probabilities);
  const std::int64_t columns = logits.columns;
  const std::int64_t* const staged = context_.stage(targets);
  if (context_.only_takes_data()) return;
  double* const losses = context_.scratch<double>(Scratch::row_values, logits.rows);
  for_rows(context_, logits.rows, columns, [=] __device__(std::int64_t row) {
    const RowSum sum = sum_of_row(in, row, vocab, -INFINITY);
    if (threadIdx.x == 0)
      losses[row] = log(static_cast<double>(sum.sum)) + static_cast<double>(sum.largest) -
                    static_cast<double>(load_one(in, row, staged[row]));
    __syncthreads();
    write_probabilities(in, row, vocab, columns, sum.largest, 1.0F / sum.sum, out);
  });
  sum_losses(context_, losses, logits.rows, loss);
}

void CudaKernels::cross_entropy_part(const Matrix& logits, Tokens targets, VocabularyPart part, const LossPart& out) {
  const Operand in = operand(logits);
  const std::int64_t* const staged = context_.stage(targets);
  if (context_.only_takes_data()) return;
  float *const largest = floats(out.largest), *const sums = floats(out.sum), *const of_target = floats(out.target);
  for_rows(context_, logits.rows, logits.columns, [=] __device__(std::int64_t row) {
    const RowSum sum = sum_of_row(in, row, part.count, -FLT_MAX);
    if (threadIdx.x != 0) return;
    const std::int64_t target = staged[row] - part.first;
    largest[row] = sum.largest;
    sums[row] = sum.sum;
    of_target[row] = target >= 0 && target < part.count ? load_one(in, row, target) : 0.0F;
  });
}

void CudaKernels::cross_entropy_of_parts(const Matrix& logits, VocabularyPart part, std::span<const LossPart> parts,
                                         const Matrix& probabilities, double& loss) {
  check_places(logits, probabilities);
  std::vector<PartPointers> pointers;
  for (const LossPart& one : parts) pointers.push_back({floats(one.largest), floats(one.sum), floats(one.target)});
  const PartPointers* const staged = context_.stage(std::span<const PartPointers>(pointers));
  if (context_.only_takes_data()) return;
  const std::int64_t count = std::ssize(parts), columns = logits.columns;
  const Operand in = operand(logits), out = operand(probabilities);
  double* const losses = context_.scratch<double>(Scratch::row_values, logits.rows);
  for_rows(context_, logits.rows, columns, [=] __device__(std::int64_t row) {
    const Joined all = join(staged, count, row);
    if (threadIdx.x == 0) losses[row] = log(all.sum) + static_cast<double>(all.largest) - all.target;
    write_probabilities(in, row, part.count, columns, all.largest, static_cast<float>(1 / all.sum), out);
  });
  sum_losses(context_, losses, logits.rows, loss);
}

void CudaKernels::cross_entropy_input_grad(const Matrix& probabilities, Tokens targets, std::int64_t first,
                                           double scale, const Matrix& d_logits) {
  const Operand in = operand(probabilities), out = operand(d_logits);
  const std::int64_t* const staged = context_.stage(targets);
  if (context_.only_takes_data()) return;
  const auto factor = static_cast<float>(scale);
  for_chunks(context_, {d_logits.rows, d_logits.columns},
             [=] __device__(std::int64_t row, std::int64_t column, int count) {
               const std::int64_t target = staged[row] - first;
               Values a = load(in, row, column, count);
#pragma unroll
               for (int i = 0; i < kChunk; ++i) a.v[i] = factor * (column + i == target ? a.v[i] - 1.0F : a.v[i]);
               store(out, row, column, a, count);
             });
}

}  // namespace weft::cuda
