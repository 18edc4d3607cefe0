#include "cost/kernel_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/attention_time.hpp"

namespace weft {
namespace {

double matrix_peak(const Device& device, ElementType type) {
  return 1e12 * (type == ElementType::fp32 ? device.matrix_tflops_32 : device.matrix_tflops_16);
}

double product_peak(const Device& device, ElementType type, ProductFormat format) {
  if (format == ProductFormat::fp8) return 1e12 * device.matrix_tflops_8;
  if (format == ProductFormat::fp4) return 1e12 * device.matrix_tflops_4;
  return matrix_peak(device, type);
}

double product_efficiency(const DeviceProfile& reached, ProductFormat format) {
  if (format == ProductFormat::fp8) return reached.fp8_efficiency;
  if (format == ProductFormat::fp4) return reached.fp4_efficiency;
  return reached.matrix_efficiency;
}

double streamed(double bytes, const Device& device, const DeviceProfile& reached) {
  return bytes / (device.memory_bandwidth.bytes_per_second * reached.memory_efficiency);
}

// Smaller tiles fill the compute units better but are less efficient. The shares are estimates; the large tiles explain
// LLMCompass's A100 measurements to 3 % on average.
struct Tile {
  std::int64_t rows, columns;
  double share;
};
constexpr std::array kTiles{Tile{128, 256, 1.0}, Tile{256, 128, 1.0}, Tile{128, 128, 0.9},
                            Tile{128, 64, 0.7},  Tile{64, 128, 0.7},  Tile{64, 64, 0.5}};
// The inner dimension may be split over several units where there are few tiles; each keeps at least this much.
constexpr std::int64_t kMinInner = 512;
constexpr std::array<std::int64_t, 4> kSplits{1, 2, 4, 8};

// In doubles: shapes a user may write overflow 64 bits once multiplied.
double ceil_div(double a, double b) {
  return std::ceil(a / b);
}

// Megatron's kernel for scale, mask and softmax works on four score matrices at a time (its fused_softmax.py); with any
// other number PyTorch does it in fp32, one step after the other.
bool softmax_in_one_kernel(const OpKey& key) {
  return key.dims[0] * key.dims[1] % 4 == 0;
}

double unfused_attention_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached) {
  const bool backward = key.phase == Phase::input_grad;
  const auto size = static_cast<double>(size_of(key.dtype).value);
  const auto d = [&](std::size_t i) { return static_cast<double>(key.dims[i]); };
  const double scores = size * d(0) * d(1) * d(2) * d(3);
  const double operands = size * d(0) * d(1) * (d(2) + d(3)) * std::max(d(4), d(5));
  const double products = backward ? 4 : 2;
  const double arithmetic = model_flops(key).value / (matrix_peak(device, key.dtype) * reached.batched_efficiency);
  const double traffic = streamed(products * (scores + 1.5 * operands), device, reached);
  // Besides the products, one kernel for scale, mask and softmax reads and writes the scores, dropout does the same and
  // writes its mask, and backward reads gradient, mask and softmax.
  double passes = backward ? 6 : 4.5;
  if (!softmax_in_one_kernel(key)) passes += 10;  // to fp32, scaled, masked, soft-maxed, back
  return std::max(arithmetic, traffic) + streamed(passes * scores, device, reached);
}

// The time of an inversion by Cholesky over that of a product of the same size. It has half of the arithmetic (n^3 / 3
// for the triangle, 2 n^3 / 3 for the inverse, against 2 n^3), most of which waits for what was computed before.
// PipeFisher's repository (kazukiosawa/pipe-fisher, prof/*.csv) has the factors of a BERT layer at 71.7 and 49.1 ms
// (Base, on P100 and V100) and 126.7 and 80.8 ms (Large). With products at nine tenths of 9.3 and 14 TFLOP/s these are
// 4.8, 4.9, 3.6 and 3.4 products.
constexpr double kInversionInProducts = 4;

}  // namespace

double product_seconds(std::int64_t rows, std::int64_t columns, std::int64_t inner, std::int64_t count,
                       ElementType type, const Device& device, const DeviceProfile& reached, ProductFormat format) {
  const double peak = product_peak(device, type, format);
  const double rate = peak * product_efficiency(reached, format);
  // Starting and ending a tile takes as long in every format.
  const double startup = static_cast<double>(reached.tile_startup) * peak / matrix_peak(device, type);
  const auto d = [](std::int64_t n) { return static_cast<double>(n); };
  if (!reached.tiled) return 2 * d(rows) * d(columns) * d(inner) * d(count) / rate;
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles = ceil_div(d(rows), d(tile.rows)) * ceil_div(d(columns), d(tile.columns)) * d(count);
    for (const std::int64_t split : kSplits) {
      if (split > 1 && inner / split < kMinInner) break;
      const double waves = ceil_div(tiles * d(split), device.compute_units);
      const double tile_flops = 2 * d(tile.rows) * d(tile.columns) * (d(inner) / d(split) + startup);
      double seconds = waves * tile_flops * device.compute_units / (rate * tile.share);
      // Partial sums are written and read once more, in fp32.
      if (split > 1) seconds += streamed(8 * d(split) * d(rows) * d(columns) * d(count), device, reached);
      if (best == 0 || seconds < best) best = seconds;
      if (tiles >= device.compute_units) break;
    }
  }
  return best;
}

std::int64_t kernel_count(const OpKey& key) {
  if (key.kind != OpKind::attention) return 1;
  const bool backward = key.phase == Phase::input_grad;
  if (key.causal_half) return backward ? 3 : 1;
  // Two products, softmax, dropout, two transpositions; backward four products and as much again.
  const std::int64_t apart = softmax_in_one_kernel(key) ? 0 : backward ? 12 : 7;
  return (backward ? 10 : 6) + apart;
}

double kernel_seconds(const OpKey& key, const Device& device, const DeviceProfile& reached) {
  if (key.kind == OpKind::task) return static_cast<double>(key.dims[0]) * 1e-9;  // as the user says
  double seconds = streamed(memory_traffic(key), device, reached);
  if (key.kind == OpKind::gemm) {
    const double product =
        product_seconds(key.dims[0], key.dims[1], key.dims[2], key.dims[3], key.dtype, device, reached, key.product);
    seconds = std::max(seconds, product);
  } else if (key.kind == OpKind::attention && key.causal_half) {
    const double share = reached.tiled ? attention_share(key, device) : 1;
    const double rate = matrix_peak(device, key.dtype) * reached.attention_efficiency * share;
    seconds = std::max(seconds, executed_flops(key).value / rate);
  } else if (key.kind == OpKind::attention) {
    seconds = unfused_attention_seconds(key, device, reached);
  } else if (key.kind == OpKind::low_rank) {
    const double rate = matrix_peak(device, key.dtype) * reached.matrix_efficiency;
    seconds = std::max(seconds, executed_flops(key).value / rate);
  }
  const auto fp32_product = [&](std::int64_t rows, std::int64_t columns, std::int64_t inner) {
    return product_seconds(rows, columns, inner, 1, ElementType::fp32, device, reached, ProductFormat::stored);
  };
  double share = 1;
  if (key.kind == OpKind::curvature) {
    share = 1 / static_cast<double>(key.dims[2]);
    seconds = std::max(seconds, share * product_seconds(key.dims[0], key.dims[0], key.dims[1], 1, key.dtype, device,
                                                        reached, ProductFormat::stored));
  } else if (key.kind == OpKind::inverse) {
    share = 1 / static_cast<double>(key.dims[1]);
    seconds = std::max(seconds, share * kInversionInProducts * fp32_product(key.dims[0], key.dims[0], key.dims[0]));
  } else if (key.kind == OpKind::precondition) {
    seconds = std::max(seconds, fp32_product(key.dims[0], key.dims[1], key.dims[0]) +
                                    fp32_product(key.dims[0], key.dims[1], key.dims[1]));
  }
  return seconds +
         share * static_cast<double>(kernel_count(key)) * static_cast<double>(reached.kernel_gap.value) * 1e-9;
}

}  // namespace weft
