// The GPT of compute_vs_pytorch.py, trained by Weft's kernels: one step for every line on stdin, its seconds and loss
// on stdout. Weights and tokens come from a file, so that both sides compute the same.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "kernels/kernels.hpp"

namespace weft {
namespace {

struct Sizes {
  std::int64_t layers = 0, width = 0, batch = 0, sequence = 0, vocab = 0, heads = 0;
  std::int64_t tokens() const { return batch * sequence; }
};

// Parameters, and in the same places gradients and moments, in the order of PyTorch's parameters().
struct LayerWeights {
  NormWeights norm1, norm2;
  Matrix qkv, out, up, down;
  Vector qkv_bias, out_bias, up_bias, down_bias;
};
struct GptWeights {
  Matrix tokens, positions;
  std::vector<LayerWeights> layers;
  NormWeights last;
  std::int64_t size = 0;
};

GptWeights lay_out(const Sizes& sizes, float* memory) {
  GptWeights weights;
  const auto vector = [&](std::int64_t size) {
    Vector place{memory + weights.size, size};
    weights.size += size;
    return place;
  };
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return Matrix::dense(vector(rows * columns).data, rows, columns);
  };
  const auto norm_weights = [&] {
    const Vector gain = vector(sizes.width);
    return NormWeights{gain, vector(sizes.width)};
  };
  const std::int64_t width = sizes.width;
  weights.tokens = matrix(sizes.vocab, width);
  weights.positions = matrix(sizes.sequence, width);
  for (std::int64_t layer = 0; layer < sizes.layers; ++layer) {
    LayerWeights& part = weights.layers.emplace_back();
    part.norm1 = norm_weights();
    part.qkv = matrix(3 * width, width);
    part.qkv_bias = vector(3 * width);
    part.out = matrix(width, width);
    part.out_bias = vector(width);
    part.norm2 = norm_weights();
    part.up = matrix(4 * width, width);
    part.up_bias = vector(4 * width);
    part.down = matrix(width, 4 * width);
    part.down_bias = vector(width);
  }
  weights.last = norm_weights();
  return weights;
}

class Tensor {
 public:
  Tensor() = default;
  Tensor(std::int64_t rows, std::int64_t columns)
      : memory_(static_cast<std::size_t>(rows * columns)), rows_(rows), columns_(columns) {}
  Matrix matrix() { return Matrix::dense(memory_.data(), rows_, columns_); }

 private:
  std::vector<float> memory_;
  std::int64_t rows_ = 0, columns_ = 0;
};

struct LayerState {
  Tensor in, normed1, qkv, softmax, context, middle, normed2, up, activated;
};

class Trainer {
 public:
  Trainer(int threads, const Sizes& sizes, std::vector<float> weights, std::vector<std::int64_t> tokens,
          std::vector<std::int64_t> targets)
      : kernels_(make_kernels({.threads = threads})),
        sizes_(sizes),
        values_(std::move(weights)),
        gradients_(values_.size()),
        first_(values_.size()),
        second_(values_.size()),
        weights_(lay_out(sizes, values_.data())),
        d_(lay_out(sizes, gradients_.data())),
        tokens_(std::move(tokens)),
        targets_(std::move(targets)),
        positions_(static_cast<std::size_t>(sizes.sequence)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    const std::int64_t rows = sizes.tokens(), width = sizes.width;
    for (std::int64_t layer = 0; layer < sizes.layers; ++layer)
      states_.push_back({Tensor(rows, width), Tensor(rows, width), Tensor(rows, 3 * width),
                         Tensor(sizes.heads * rows, sizes.sequence), Tensor(rows, width), Tensor(rows, width),
                         Tensor(rows, width), Tensor(rows, 4 * width), Tensor(rows, 4 * width)});
    last_ = Tensor(rows, width);
    normed_ = Tensor(rows, width);
    logits_ = Tensor(rows, sizes.vocab);
    d_stream_ = Tensor(rows, width);
    d_narrow_ = Tensor(rows, width);
    d_wide_ = Tensor(rows, 4 * width);
    d_qkv_ = Tensor(rows, 3 * width);
  }

  double step() {
    ++step_;
    double loss = 0;
    forward(loss);
    backward();
    const auto size = static_cast<std::int64_t>(values_.size());
    bool finite = false;
    kernels_->adam({.learning_rate = 1e-4, .weight_decay = 1e-2}, step_, {},
                   {{gradients_.data(), size}, {values_.data(), size}, {first_.data(), size}, {second_.data(), size}},
                   finite);
    kernels_->synchronize();
    WEFT_CHECK(finite);
    return loss / static_cast<double>(sizes_.tokens());
  }

 private:
  AttentionShape shape() const {
    return {.sequences = sizes_.batch,
            .heads = sizes_.heads,
            .kv_heads = sizes_.heads,
            .head_size = sizes_.width / sizes_.heads,
            .queries = sizes_.sequence,
            .keys = sizes_.sequence};
  }
  static Matrix third(const Matrix& qkv, int index) {
    const std::int64_t width = qkv.columns / 3;
    return qkv.column_slice(index * width, (index + 1) * width);
  }

  void forward(double& loss) {
    kernels_->embedding(tokens_, weights_.tokens, 0, {weights_.positions, positions_}, states_.front().in.matrix());
    for (std::size_t layer = 0; layer < states_.size(); ++layer)
      forward(weights_.layers[layer], states_[layer],
              layer + 1 < states_.size() ? states_[layer + 1].in.matrix() : last_.matrix());
    kernels_->norm(last_.matrix(), weights_.last, normed_.matrix());
    kernels_->linear(normed_.matrix(), weights_.tokens, {}, logits_.matrix());
    kernels_->cross_entropy(logits_.matrix(), targets_, sizes_.vocab, logits_.matrix(), loss);
  }

  void forward(const LayerWeights& w, LayerState& state, const Matrix& out) {
    const Matrix qkv = state.qkv.matrix(), middle = state.middle.matrix();
    kernels_->norm(state.in.matrix(), w.norm1, state.normed1.matrix());
    kernels_->linear(state.normed1.matrix(), w.qkv, w.qkv_bias, qkv);
    kernels_->attention(shape(), third(qkv, 0), third(qkv, 1), third(qkv, 2), state.context.matrix(),
                        {{}, state.softmax.matrix()});
    kernels_->linear(state.context.matrix(), w.out, w.out_bias, middle);
    kernels_->add(middle, state.in.matrix(), middle);
    kernels_->norm(middle, w.norm2, state.normed2.matrix());
    kernels_->linear(state.normed2.matrix(), w.up, w.up_bias, state.up.matrix());
    kernels_->gelu(state.up.matrix(), state.activated.matrix());
    kernels_->linear(state.activated.matrix(), w.down, w.down_bias, out);
    kernels_->add(out, middle, out);
  }

  void backward() {
    const Matrix logits = logits_.matrix(), stream = d_stream_.matrix(), narrow = d_narrow_.matrix();
    kernels_->cross_entropy_input_grad(logits, targets_, 0, 1 / static_cast<double>(sizes_.tokens()), logits);
    kernels_->linear_weight_grad(normed_.matrix(), logits, d_.tokens, {}, Into::overwrite);
    kernels_->linear_input_grad(logits, weights_.tokens, narrow);
    kernels_->norm_weight_grad(narrow, last_.matrix(), weights_.last, d_.last.gain, d_.last.bias, Into::overwrite);
    kernels_->norm_input_grad(narrow, last_.matrix(), weights_.last, {}, stream);
    for (std::size_t layer = states_.size(); layer-- > 0;)
      backward(weights_.layers[layer], d_.layers[layer], states_[layer]);
    kernels_->embedding_weight_grad(tokens_, stream, d_.tokens, 0, Into::add);
    kernels_->positions_weight_grad(stream, {d_.positions, positions_}, Into::overwrite);
  }

  void backward(const LayerWeights& w, const LayerWeights& d, LayerState& state) {
    const Matrix stream = d_stream_.matrix(), narrow = d_narrow_.matrix(), wide = d_wide_.matrix();
    kernels_->linear_weight_grad(state.activated.matrix(), stream, d.down, d.down_bias, Into::overwrite);
    kernels_->linear_input_grad(stream, w.down, wide);
    kernels_->gelu_input_grad(wide, state.up.matrix(), wide);
    kernels_->linear_weight_grad(state.normed2.matrix(), wide, d.up, d.up_bias, Into::overwrite);
    kernels_->linear_input_grad(wide, w.up, narrow);
    kernels_->norm_weight_grad(narrow, state.middle.matrix(), w.norm2, d.norm2.gain, d.norm2.bias, Into::overwrite);
    kernels_->norm_input_grad(narrow, state.middle.matrix(), w.norm2, stream, stream);

    const Matrix qkv = state.qkv.matrix(), d_qkv = d_qkv_.matrix();
    kernels_->linear_weight_grad(state.context.matrix(), stream, d.out, d.out_bias, Into::overwrite);
    kernels_->linear_input_grad(stream, w.out, narrow);
    kernels_->attention_input_grad(shape(), third(qkv, 0), third(qkv, 1), third(qkv, 2), state.context.matrix(),
                                   {{}, state.softmax.matrix()}, narrow, third(d_qkv, 0), third(d_qkv, 1),
                                   third(d_qkv, 2));
    kernels_->linear_weight_grad(state.normed1.matrix(), d_qkv, d.qkv, d.qkv_bias, Into::overwrite);
    kernels_->linear_input_grad(d_qkv, w.qkv, narrow);
    kernels_->norm_weight_grad(narrow, state.in.matrix(), w.norm1, d.norm1.gain, d.norm1.bias, Into::overwrite);
    kernels_->norm_input_grad(narrow, state.in.matrix(), w.norm1, stream, stream);
  }

  std::unique_ptr<Kernels> kernels_;
  Sizes sizes_;
  std::vector<float> values_, gradients_, first_, second_;
  GptWeights weights_, d_;
  std::vector<std::int64_t> tokens_, targets_, positions_;
  std::vector<LayerState> states_;
  Tensor last_, normed_, logits_, d_stream_, d_narrow_, d_wide_, d_qkv_;
  std::int64_t step_ = 0;
};

template <class T>
std::vector<T> read_values(std::ifstream& file, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
  if (!file) fail("the file of weights is too short");
  return values;
}

int serve(const std::vector<std::string>& arguments) {
  if (arguments.size() != 8) fail("usage: training_step_bench FILE THREADS LAYERS WIDTH BATCH SEQUENCE VOCAB HEADS");
  const auto number = [&](std::size_t index) { return std::stoll(arguments[index]); };
  const Sizes sizes{number(2), number(3), number(4), number(5), number(6), number(7)};
  std::ifstream file(arguments[0], std::ios::binary);
  std::vector<float> weights = read_values<float>(file, lay_out(sizes, nullptr).size);
  std::vector<std::int64_t> tokens = read_values<std::int64_t>(file, sizes.tokens());
  std::vector<std::int64_t> targets = read_values<std::int64_t>(file, sizes.tokens());
  Trainer trainer(static_cast<int>(number(1)), sizes, std::move(weights), std::move(tokens), std::move(targets));
  for (std::string line; std::getline(std::cin, line);) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t busy_start = std::clock();
    const double loss = trainer.step();
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    const double busy = static_cast<double>(std::clock() - busy_start) / CLOCKS_PER_SEC;
    fmt::print("{} {} {}\n", spent.count(), busy, loss);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace weft

int main(int count, char** arguments) {
  try {
    return weft::serve({arguments + 1, arguments + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
