// A batch in parts that hand the used capacity on, against the same batch whole: thousands of seeded batches.
#include <gtest/gtest.h>

#include <random>

#include "kernels/test_gates.hpp"

namespace weft {
namespace {

constexpr std::int64_t kHidden = 5;

struct Batch {
  GateShape shape;
  at::Tensor scores, x;
  std::vector<at::Tensor> weights;  // by expert

  std::int64_t tokens() const { return scores.size(0); }
  std::vector<Matrix> matrices() const {
    std::vector<Matrix> all;
    for (const at::Tensor& w : weights) all.push_back(Matrix::dense(w.data_ptr<float>(), w.size(0), w.size(1)));
    return all;
  }
};

// Loads from even to all on one expert, capacities from scarce to plenty.
Batch random_batch(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return static_cast<std::int64_t>(random() % limit); };
  Batch batch;
  batch.shape.experts = 1 + below(8);
  batch.shape.top_k =
      seed % 2 == 0 ? 1 : 1 + below(static_cast<std::uint64_t>(std::min<std::int64_t>(4, batch.shape.experts)));
  batch.shape.renormalise = batch.shape.top_k > 1 && below(2) == 0;
  const std::int64_t tokens = 8 + below(40);
  const std::int64_t fair = (tokens * batch.shape.top_k + batch.shape.experts - 1) / batch.shape.experts;
  batch.shape.capacity = 1 + below(static_cast<std::uint64_t>(2 * fair));
  batch.scores = skewed_scores(tokens, batch.shape.experts, 0.5 * static_cast<double>(below(5)), seed);
  batch.x = random_tensor({tokens, kHidden}, seed + 1'000'000);
  for (std::int64_t e = 0; e < batch.shape.experts; ++e) {
    batch.weights.push_back(random_tensor({kHidden, kHidden}, seed + 2'000'000 + static_cast<std::uint64_t>(e)));
  }
  return batch;
}

struct Layer {
  Layer(const GateShape& shape, std::int64_t tokens)
      : gate(shape, tokens), slots(shape.slots(), kHidden), experts(shape.slots(), kHidden), y(tokens, kHidden) {}
  GateOutput gate;
  SlicedTensor slots, experts, y;
};

// Rows begin..end of the batch through gate, dispatch, experts and combine; only the slots that these rows got are
// touched.
void run_rows(const Batch& batch, std::int64_t begin, std::int64_t end, Layer& layer) {
  const GateShape& shape = batch.shape;
  const Matrix scores = Matrix::dense(batch.scores.data_ptr<float>(), batch.tokens(), shape.experts);
  const Matrix x = Matrix::dense(batch.x.data_ptr<float>(), batch.tokens(), kHidden);
  const Matrix routing = layer.gate.routing.matrix().row_slice(begin, end);
  const at::Tensor before = begin == 0 ? at::zeros({shape.experts}) : layer.gate.choices.clone();
  kernels().gate(shape, scores.row_slice(begin, end), routing, layer.gate.load(),
                 begin == 0 ? Into::overwrite : Into::add);
  kernels().dispatch_rows(x.row_slice(begin, end), routing, layer.slots.matrix(), EmptySlots::keep);
  std::vector<ElementRange> used;
  for (std::int64_t e = 0; e < shape.experts; ++e) {
    const auto limited = [&](const at::Tensor& count) {
      return std::min(shape.capacity, static_cast<std::int64_t>(count[e].item<float>()));
    };
    used.push_back({limited(before), limited(layer.gate.choices)});
  }
  kernels().expert_linear({1, shape.experts, shape.capacity, used}, layer.slots.matrix(), batch.matrices(), {},
                          layer.experts.matrix());
  kernels().combine_rows(layer.experts.matrix(), routing, layer.y.matrix().row_slice(begin, end));
}

// By definition: every kept choice adds its weight times its expert's product.
at::Tensor brute_force_layer(const Batch& batch, const TestGate& gate) {
  at::Tensor y = at::zeros({batch.tokens(), kHidden}, at::kDouble);
  const at::Tensor p = at::softmax(batch.scores.to(at::kDouble), 1), x = batch.x.to(at::kDouble);
  const std::size_t k = batch.shape.top_k;
  for (std::size_t i = 0; i < gate.choices.size(); ++i) {
    if (gate.slots[i] < 0) continue;
    const TestChoice& choice = gate.choices[i];
    double sum = 0;
    for (std::size_t j = 0; j < k; ++j) sum += p[choice.token][gate.choices[i / k * k + j].expert].item<double>();
    const double weight = p[choice.token][choice.expert].item<double>() / (batch.shape.renormalise ? sum : 1);
    const at::Tensor w = batch.weights[choice.expert].to(at::kDouble);
    y[choice.token] += weight * w.matmul(x[choice.token]);
  }
  return y;
}

TEST(GateParts, DecideDropAndComputeAsTheWholeBatch) {
  std::int64_t dropped = 0, kept = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    const Batch batch = random_batch(seed);
    Layer whole(batch.shape, batch.tokens());
    run_rows(batch, 0, batch.tokens(), whole);
    const at::Tensor routing = whole.gate.routing.values(), slots = routing.narrow(1, 0, batch.shape.top_k);
    dropped += slots.lt(0).sum().item<std::int64_t>();
    kept += slots.ge(0).sum().item<std::int64_t>();
    if (seed % 10 == 0) {  // the oracle takes its time
      const TestGate expected = brute_force_gate(batch.shape, batch.scores);
      ASSERT_TRUE(slots.to(at::kLong).equal(at::tensor(expected.slots).view_as(slots))) << seed;
      ASSERT_LE((whole.y.values() - brute_force_layer(batch, expected)).abs().max().item<double>(), 5e-6) << seed;
    }
    const std::int64_t parts = 1 + static_cast<std::int64_t>(seed % 8);
    Layer cut(batch.shape, batch.tokens());
    for (std::int64_t i = 0; i < parts; ++i) {
      run_rows(batch, i * batch.tokens() / parts, (i + 1) * batch.tokens() / parts, cut);
    }
    ASSERT_TRUE(cut.gate.routing.values().equal(routing)) << seed;
    ASSERT_TRUE(cut.gate.choices.equal(whole.gate.choices)) << seed;
    ASSERT_LE(relative_error(cut.gate.probabilities, whole.gate.probabilities), 1e-6) << seed;
    ASSERT_LE((cut.y.values() - whole.y.values()).abs().max().item<double>(), 1e-6) << seed;
    ASSERT_TRUE(cut.slots.values().equal(whole.slots.values())) << seed;
  }
  // The batches are of use: a good share of the choices is dropped, and a good share kept.
  EXPECT_GT(dropped, (dropped + kept) / 10);
  EXPECT_GT(kept, (dropped + kept) / 3);
}

// Where each part has slots of its own, the same choices have one as in the whole batch, at the place that is left when
// the choices of earlier parts are taken away.
TEST(GateParts, WithSlotsOfTheirOwnDropWhatTheWholeBatchDrops) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Batch batch = random_batch(seed);
    const TestGate whole = brute_force_gate(batch.shape, batch.scores);
    const std::int64_t parts = 1 + static_cast<std::int64_t>(seed % 5), k = batch.shape.top_k;
    const Matrix scores = Matrix::dense(batch.scores.data_ptr<float>(), batch.tokens(), batch.shape.experts);
    GateOutput output(batch.shape, batch.tokens());
    std::vector<std::int64_t> before(static_cast<std::size_t>(batch.shape.experts), 0);
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t begin = i * batch.tokens() / parts, end = (i + 1) * batch.tokens() / parts;
      GateShape shape = batch.shape;
      shape.capacity = std::min(batch.shape.capacity, end - begin);
      shape.capacity_of_calls = batch.shape.capacity;
      kernels().gate(shape, scores.row_slice(begin, end), output.routing.matrix().row_slice(begin, end), output.load(),
                     i == 0 ? Into::overwrite : Into::add);
      std::vector<std::int64_t> expected;
      for (std::int64_t c = begin * k; c < end * k; ++c) {
        const std::int64_t slot = whole.slots[c], expert = whole.choices[c].expert;
        const std::int64_t position = slot % batch.shape.capacity - before[expert];
        expected.push_back(slot < 0 ? slot : expert * shape.capacity + position);
      }
      for (std::int64_t c = begin * k; c < end * k; ++c) ++before[whole.choices[c].expert];
      const at::Tensor slots = output.routing.values().narrow(0, begin, end - begin).narrow(1, 0, k).to(at::kLong);
      ASSERT_TRUE(slots.equal(at::tensor(expected).view_as(slots))) << seed << ", part " << i;
    }
    ASSERT_TRUE(output.choices.to(at::kLong).equal(at::tensor(whole.counts))) << seed;
  }
}

}  // namespace
}  // namespace weft
