// One pass over gradient, weights and moments, after one over the gradient that looks for NaN and infinity: what it
// found stays on the device, where the update reads it.
#include <cmath>

#include "kernels/cuda/cuda_kernels.hpp"
#include "kernels/cuda/launch.cuh"

namespace weft::cuda {
namespace {

constexpr std::int64_t kSumGrain = 1 << 14;  // elements that are worth a block of their own
constexpr std::int64_t kMaxSumBlocks = 512;

// 1 where x holds a NaN or an infinity.
const int* find_infinite(Context& context, const Vector& x) {
  int* const found = context.scratch<int>(Scratch::flag, 1);
  check(cudaMemsetAsync(found, 0, sizeof(int), context.current_stream()), "clearing memory");
  const Operand in = operand(x);
  for_chunks(context, {1, x.size}, [=] __device__(std::int64_t row, std::int64_t column, int count) {
    const Values a = load(in, row, column, count);
    bool finite = true;
#pragma unroll
    for (const float v : a.v) finite = finite && isfinite(v);
    if (!finite) *found = 1;
  });
  return found;
}

__global__ void report_kernel(const int* found, std::uint64_t* finite) {
  *finite = *found == 0 ? 1 : 0;
}

struct Clip {
  const float* square_sum = nullptr;
  double limit = 0;
  __device__ float scale() const {
    if (square_sum == nullptr) return 1;
    return static_cast<float>(fmin(1.0, limit / (sqrt(static_cast<double>(*square_sum)) + kClipEpsilon)));
  }
};
Clip clip_of(const GradientClip& clip) {
  return {floats(clip.square_sum), clip.limit};
}

// What both optimizers read and write, with the gradient's state in front.
struct Update {
  const int* infinite;
  Clip clip;
  Operand gradient, weights, master;
  // The weights that are updated.
  __device__ Values old(std::int64_t column, int count) const {
    return load(master.data != nullptr ? master : weights, 0, column, count);
  }
  __device__ void write(std::int64_t column, const Values& updated, int count) const {
    if (master.data != nullptr) store(master, 0, column, updated, count);
    store(weights, 0, column, updated, count);
  }
};
Update update_of(Context& context, const GradientClip& clip, const UpdatedParameter& parameter, bool& finite) {
  const int* const infinite = find_infinite(context, parameter.gradient);
  report_kernel<<<1, 1, 0, context.current_stream()>>>(infinite, context.results().ask_for(finite));
  return {infinite, clip_of(clip), operand(parameter.gradient), operand(parameter.weights), operand(parameter.master)};
}

struct AdamFactors {
  float keep_first, take_first, keep_second, take_second, decay, rate, inverse_root, epsilon;
};
AdamFactors factors_of(const AdamSettings& settings, std::int64_t step) {
  const double correction1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
  return {static_cast<float>(settings.beta1),
          static_cast<float>(1 - settings.beta1),
          static_cast<float>(settings.beta2),
          static_cast<float>(1 - settings.beta2),
          static_cast<float>(1 - settings.learning_rate * settings.weight_decay),
          static_cast<float>(settings.learning_rate / correction1),
          static_cast<float>(1 / std::sqrt(correction2)),
          static_cast<float>(settings.epsilon)};
}

struct SgdFactors {
  float decay, keep, rate;
  bool is_first;
};

__global__ void square_sum_kernel(Operand x, std::int64_t size, double* partial) {
  double sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kChunk;
  for (std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kChunk; column < size;
       column += step) {
    const Values a = load(x, 0, column, static_cast<int>(min(static_cast<std::int64_t>(kChunk), size - column)));
#pragma unroll
    for (const float v : a.v) sum += static_cast<double>(v) * static_cast<double>(v);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}
__global__ void total_kernel(const double* partial, std::int64_t count, float* result) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) *result = static_cast<float>(sum);
}
std::int64_t sum_blocks(const Vector& x) {
  return std::min(ceil_div(x.size, kSumGrain), kMaxSumBlocks);
}

}  // namespace

void CudaKernels::adam(const AdamSettings& settings, std::int64_t step, const GradientClip& clip,
                       const UpdatedParameter& parameter, bool& finite) {
  const HostValue<AdamFactors> factors = context_.host_value(factors_of(settings, step));
  if (context_.only_takes_data()) return;
  const Update update = update_of(context_, clip, parameter, finite);
  const Operand first = operand(parameter.first_moment), second = operand(parameter.second_moment);
  for_chunks(context_, {1, parameter.weights.size}, [=] __device__(std::int64_t, std::int64_t column, int count) {
    if (*update.infinite != 0) return;
    const AdamFactors f = value_of(factors);
    const float scale = update.clip.scale();
    const Values gradient = load(update.gradient, 0, column, count);
    Values weights = update.old(column, count);
    Values mean = load(first, 0, column, count), square = load(second, 0, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float scaled = gradient.v[i] * scale;
      mean.v[i] = mean.v[i] * f.keep_first + scaled * f.take_first;
      square.v[i] = square.v[i] * f.keep_second + scaled * scaled * f.take_second;
      weights.v[i] = weights.v[i] * f.decay - f.rate * (mean.v[i] / (sqrtf(square.v[i]) * f.inverse_root + f.epsilon));
    }
    store(first, 0, column, mean, count);
    store(second, 0, column, square, count);
    update.write(column, weights, count);
  });
}

// The first step finds no momentum: whatever is in that memory, NaN too, counts for nothing.
void CudaKernels::sgd(const SgdSettings& settings, std::int64_t step, const GradientClip& clip,
                      const UpdatedParameter& parameter, bool& finite) {
  const HostValue<SgdFactors> factors =
      context_.host_value(SgdFactors{static_cast<float>(settings.weight_decay), static_cast<float>(settings.momentum),
                                     static_cast<float>(settings.learning_rate), step == 1});
  if (context_.only_takes_data()) return;
  const Update update = update_of(context_, clip, parameter, finite);
  const Operand momentum = settings.momentum != 0 ? operand(parameter.first_moment) : Operand{};
  for_chunks(context_, {1, parameter.weights.size}, [=] __device__(std::int64_t, std::int64_t column, int count) {
    if (*update.infinite != 0) return;
    const SgdFactors f = value_of(factors);
    const float scale = update.clip.scale();
    const Values gradient = load(update.gradient, 0, column, count);
    Values weights = update.old(column, count), kept = {};
    if (momentum.data != nullptr && !f.is_first) kept = load(momentum, 0, column, count);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      kept.v[i] = f.keep * kept.v[i] + gradient.v[i] * scale + f.decay * weights.v[i];
      weights.v[i] -= f.rate * kept.v[i];
    }
    if (momentum.data != nullptr) store(momentum, 0, column, kept, count);
    update.write(column, weights, count);
  });
}

void CudaKernels::square_sum(std::span<const Vector> parts, const Vector& sum) {
  std::int64_t blocks = 0;
  for (const Vector& part : parts) blocks += sum_blocks(part);
  double* const partial = context_.scratch<double>(Scratch::partial_sums, std::max<std::int64_t>(blocks, 1));
  std::int64_t next = 0;
  for (const Vector& part : parts) {
    if (part.size == 0) continue;
    square_sum_kernel<<<static_cast<unsigned>(sum_blocks(part)), kThreads, 0, context_.current_stream()>>>(
        operand(part), part.size, partial + next);
    next += sum_blocks(part);
  }
  total_kernel<<<1, 1024, 0, context_.current_stream()>>>(partial, blocks, floats(sum));
  check(cudaGetLastError(), "summing squares");
}

void CudaKernels::all_finite(const Vector& x, bool& finite) {
  const int* const found = find_infinite(context_, x);
  report_kernel<<<1, 1, 0, context_.current_stream()>>>(found, context_.results().ask_for(finite));
  check(cudaGetLastError(), "looking for infinities");
}

}  // namespace weft::cuda
