// Times the kernels of a GPU at the shapes of GPT 1.3B (8 sequences of 2048 tokens), in bf16: a line of JSON for each,
// with its rate beside the best rate of the same run, which a large copy and a large product give.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "kernels/accelerator.hpp"

namespace weft {
namespace {

constexpr std::int64_t kSequences = 8, kLength = 2048, kTokens = kSequences * kLength;
constexpr std::int64_t kHidden = 2048, kFeedForward = 8192, kVocabulary = 50304, kHeads = 16;
constexpr int kWarmUps = 3, kRuns = 10;

class Bench {
 public:
  explicit Bench(Accelerator& device)
      : device_(device),
        stream_(device.make_stream(StreamPriority::usual)),
        begin_(device.make_event()),
        end_(device.make_event()) {
    device.use(stream_);
  }

  Matrix matrix(std::int64_t rows, std::int64_t columns, ElementType type = ElementType::bf16) {
    return Matrix::dense({filled(rows * columns, type), type}, rows, columns);
  }
  Vector vector(std::int64_t size, ElementType type = ElementType::bf16) { return {{filled(size, type), type}, size}; }

  struct Work {
    double bytes = 0, flops = 0;
  };
  using Call = std::function<void(Kernels&)>;
  void time(const char* name, Work work, const Call& call) {
    const double seconds = seconds_of(call);
    const bool is_product = work.flops > 0;
    double& best = is_product ? best_product_ : best_copy_;
    const double rate = (is_product ? work.flops : work.bytes) / seconds;
    best = std::max(best, rate);
    fmt::print("{{\"kernel\": \"{}\", \"ms\": {:.4f}, \"{}\": {:.1f}, \"of_best\": {:.3f}}}\n", name, seconds * 1e3,
               is_product ? "tflop_per_s" : "gb_per_s", rate * (is_product ? 1e-12 : 1e-9), rate / best);
    std::fflush(stdout);
  }

 private:
  // Numbers near one: products of zeros run faster than those of training.
  std::byte* filled(std::int64_t count, ElementType type) {
    std::byte* const memory = device_.allocate(count * size_of(type));
    std::mt19937 generator(static_cast<std::uint32_t>(++seed_));
    std::normal_distribution<float> normal(0, 0.5F);
    std::vector<float> pattern(1 << 20);
    for (float& value : pattern) value = normal(generator);
    std::byte* const floats = device_.allocate({static_cast<std::int64_t>(pattern.size() * sizeof(float))});
    device_.copy_in(std::as_bytes(std::span(pattern)), floats);
    for (std::int64_t first = 0; first < count; first += std::ssize(pattern)) {
      const std::int64_t part = std::min<std::int64_t>(std::ssize(pattern), count - first);
      device_.kernels().copy(Matrix::dense({floats, ElementType::fp32}, 1, part),
                             Matrix::dense(ElementPointer{memory, type} + first, 1, part));
    }
    return memory;
  }
  double seconds_of(const Call& call) {
    for (int i = 0; i < kWarmUps; ++i) call(device_.kernels());
    device_.kernels().synchronize();
    device_.record(begin_, stream_);
    for (int i = 0; i < kRuns; ++i) call(device_.kernels());
    device_.record(end_, stream_);
    device_.kernels().synchronize();
    return static_cast<double>(device_.time_of(end_) - device_.time_of(begin_)) * 1e-9 / kRuns;
  }

  Accelerator& device_;
  StreamId stream_;
  EventId begin_, end_;
  int seed_ = 0;
  double best_copy_ = 0, best_product_ = 0;
};

double product_flops(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}
double bytes_of(std::initializer_list<Matrix> matrices) {
  double sum = 0;
  for (const Matrix& x : matrices) sum += static_cast<double>(x.rows * x.columns * size_of(x.data.type).value);
  return sum;
}

void time_products(Bench& bench) {
  const Matrix a = bench.matrix(8192, 8192), b = bench.matrix(8192, 8192), c = bench.matrix(8192, 8192);
  bench.time("product 8192^3", {.flops = product_flops(8192, 8192, 8192)}, [&](Kernels& k) { k.linear(a, b, {}, c); });
  const Matrix x = bench.matrix(kTokens, kHidden), wide = bench.matrix(kTokens, kFeedForward);
  const Matrix w = bench.matrix(kFeedForward, kHidden), dw = bench.matrix(kFeedForward, kHidden),
               dw32 = bench.matrix(kFeedForward, kHidden, ElementType::fp32);
  const Vector bias = bench.vector(kFeedForward), bias32 = bench.vector(kFeedForward, ElementType::fp32);
  const Bench::Work work{.flops = product_flops(kTokens, kFeedForward, kHidden)};
  bench.time("linear + bias, 16384 x 8192 x 2048", work, [&](Kernels& k) { k.linear(x, w, bias, wide); });
  bench.time("linear input gradient", work, [&](Kernels& k) { k.linear_input_grad(wide, w, x); });
  bench.time("linear weight gradient", work,
             [&](Kernels& k) { k.linear_weight_grad(x, wide, dw, {}, Into::overwrite); });
  bench.time("linear weight and bias gradient", work,
             [&](Kernels& k) { k.linear_weight_grad(x, wide, dw, bias, Into::overwrite); });
  bench.time("linear weight and bias gradient, added in f32", work,
             [&](Kernels& k) { k.linear_weight_grad(x, wide, dw32, bias32, Into::add); });
}

void time_attention(Bench& bench) {
  const Matrix qkv = bench.matrix(kTokens, 3 * kHidden), d_qkv = bench.matrix(kTokens, 3 * kHidden);
  const Matrix context = bench.matrix(kTokens, kHidden), d_context = bench.matrix(kTokens, kHidden);
  AttentionShape shape;
  shape.sequences = kSequences;
  shape.heads = shape.kv_heads = kHeads;
  shape.head_size = kHidden / kHeads;
  shape.queries = shape.keys = kLength;
  AttentionSaved saved;
  saved.log_sums = bench.vector(kTokens * kHeads, ElementType::fp32);
  const auto part = [](const Matrix& x, std::int64_t i) { return x.column_slice(i * kHidden, (i + 1) * kHidden); };
  // Half of the square, two products forward and five back.
  const double square = product_flops(kLength, kLength, kHidden) * kSequences / 2;
  for (const double base : {0.0, 10000.0}) {
    shape.rotary_base = base;
    bench.time(base > 0 ? "rotary attention" : "attention", {.flops = 2 * square},
               [&](Kernels& k) { k.attention(shape, part(qkv, 0), part(qkv, 1), part(qkv, 2), context, saved); });
    bench.time(base > 0 ? "rotary attention gradient" : "attention gradient", {.flops = 5 * square}, [&](Kernels& k) {
      k.attention_input_grad(shape, part(qkv, 0), part(qkv, 1), part(qkv, 2), context, saved, d_context, part(d_qkv, 0),
                             part(d_qkv, 1), part(d_qkv, 2));
    });
  }
}

void time_elementwise(Bench& bench) {
  const Matrix x = bench.matrix(kTokens, kHidden), y = bench.matrix(kTokens, kHidden),
               z = bench.matrix(kTokens, kHidden), r = bench.matrix(kTokens, kHidden);
  const Matrix wide = bench.matrix(kTokens, kFeedForward), out = bench.matrix(kTokens, kFeedForward),
               d = bench.matrix(kTokens, kFeedForward);
  const NormWeights weights{bench.vector(kHidden), bench.vector(kHidden)};
  const Vector dgain = bench.vector(kHidden), dbias = bench.vector(kHidden);
  bench.time("copy", {.bytes = bytes_of({wide, out})}, [&](Kernels& k) { k.copy(wide, out); });
  bench.time("gelu", {.bytes = bytes_of({wide, out})}, [&](Kernels& k) { k.gelu(wide, out); });
  bench.time("gelu gradient", {.bytes = bytes_of({wide, out, d})},
             [&](Kernels& k) { k.gelu_input_grad(d, wide, out); });
  bench.time("add", {.bytes = bytes_of({x, y, z})}, [&](Kernels& k) { k.add(x, y, z); });
  bench.time("norm", {.bytes = bytes_of({x, y})}, [&](Kernels& k) { k.norm(x, weights, y); });
  bench.time("norm input gradient", {.bytes = bytes_of({x, y, z, r})},
             [&](Kernels& k) { k.norm_input_grad(x, y, weights, r, z); });
  bench.time("norm weight gradient", {.bytes = bytes_of({x, y})},
             [&](Kernels& k) { k.norm_weight_grad(x, y, weights, dgain, dbias, Into::overwrite); });
}

void time_tokens(Bench& bench) {
  std::mt19937 generator(1);
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(kTokens)), positions(static_cast<std::size_t>(kLength));
  for (std::int64_t& token : tokens) token = static_cast<std::int64_t>(generator() % kVocabulary);
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int64_t>(i);
  const Matrix table = bench.matrix(kVocabulary, kHidden), y = bench.matrix(kTokens, kHidden),
               of_places = bench.matrix(kLength, kHidden);
  bench.time("embedding", {.bytes = bytes_of({y, y})},
             [&](Kernels& k) { k.embedding(tokens, table, 0, {of_places, positions}, y); });
  bench.time("embedding gradient", {.bytes = bytes_of({table, y, y})},
             [&](Kernels& k) { k.embedding_weight_grad(tokens, y, table, 0, Into::overwrite); });
  const Matrix logits = bench.matrix(kTokens, kVocabulary);
  double loss = 0;
  bench.time("cross entropy in place", {.bytes = bytes_of({logits, logits})},
             [&](Kernels& k) { k.cross_entropy(logits, tokens, kVocabulary, logits, loss); });
  bench.time("cross entropy gradient in place", {.bytes = bytes_of({logits, logits})},
             [&](Kernels& k) { k.cross_entropy_input_grad(logits, tokens, 0, 1.0, logits); });
}

void time_updates(Bench& bench) {
  constexpr std::int64_t kSize = 100'000'000;
  const Vector gradient = bench.vector(kSize), weights = bench.vector(kSize), norm = bench.vector(1, ElementType::fp32);
  const Vector first = bench.vector(kSize, ElementType::fp32), second = bench.vector(kSize, ElementType::fp32),
               master = bench.vector(kSize, ElementType::fp32);
  bool finite = false;
  // The gradient is read twice, three tensors of f32 are read and written, the weights written.
  bench.time("adam with a master", {.bytes = static_cast<double>(kSize) * (2 * 2 + 3 * 8 + 2)},
             [&](Kernels& k) { k.adam({}, 1, {norm, 1.0}, {gradient, weights, first, second, master}, finite); });
  bench.time("square sum", {.bytes = static_cast<double>(kSize) * 2},
             [&](Kernels& k) { k.square_sum(std::vector{gradient}, norm); });
}

int run() {
  const std::unique_ptr<Accelerator> device = make_cuda_accelerator();
  fmt::print("{{\"device\": \"{}\", \"type\": \"bf16\", \"tokens\": {}}}\n", device->in_words(), kTokens);
  Bench bench(*device);
  time_elementwise(bench);
  time_products(bench);
  time_attention(bench);
  time_tokens(bench);
  time_updates(bench);
  return 0;
}

}  // namespace
}  // namespace weft

int main() {
  try {
    return weft::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
