#include "kernels/cuda/test_cuda.hpp"

namespace weft {
namespace {

class CudaExperts : public CudaTest {};

TEST_F(CudaExperts, TheGateGivesTheSameSlots) {
  for (const SlotOrder order : {SlotOrder::token, SlotOrder::choice, SlotOrder::priority})
    for (const std::int64_t tokens : {1, 37, 700})
      for (const bool renormalise : {false, true}) {
        const GateShape shape{5, 2, std::max<std::int64_t>(tokens / 4, 1), order, renormalise};
        compare([&](TestMemory& m, Kernels& k) {
          const Matrix scores = m.matrix(tokens, 5, 1), routing = m.matrix32(tokens, 4, 2), d = m.matrix(tokens, 5, 3);
          const GateLoad load{m.vector32(5, 4), m.vector32(5, 5)};
          k.gate(shape, scores, routing, load, Into::overwrite);
          k.gate_input_grad(shape, {0.01, tokens}, m.matrix(tokens, 2, 6), scores, routing, load, d);
          return std::vector{routing, as_matrix(load.choices), as_matrix(load.probabilities), d};
        });
      }
}

TEST_F(CudaExperts, TheGateGoesOnWhereEarlierRowsEnded) {
  const GateShape shape{5, 2, 10};
  compare([&](TestMemory& m, Kernels& k) {
    const Matrix scores = m.matrix(40, 5, 1), routing = m.matrix32(40, 4, 2);
    const GateLoad load{m.vector32(5, 4), m.vector32(5, 5)};
    k.gate(shape, scores.row_slice(0, 13), routing.row_slice(0, 13), load, Into::overwrite);
    k.gate(shape, scores.row_slice(13, 40), routing.row_slice(13, 40), load, Into::add);
    return std::vector{routing, as_matrix(load.choices), as_matrix(load.probabilities)};
  });
}

TEST_F(CudaExperts, TheGateGoesOnWithOtherSlots) {
  const GateShape first{.experts = 5, .top_k = 2, .capacity = 10, .capacity_of_calls = 12};
  GateShape second = first;
  second.capacity = 12;
  compare([&](TestMemory& m, Kernels& k) {
    const Matrix scores = m.matrix(40, 5, 1), routing = m.matrix32(40, 4, 2);
    const GateLoad load{m.vector32(5, 4), m.vector32(5, 5)};
    k.gate(first, scores.row_slice(0, 10), routing.row_slice(0, 10), load, Into::overwrite);
    k.gate(second, scores.row_slice(10, 40), routing.row_slice(10, 40), load, Into::add);
    return std::vector{routing, as_matrix(load.choices), as_matrix(load.probabilities)};
  });
}

TEST_F(CudaExperts, RowsGoToTheirSlotsAndBack) {
  const GateShape shape{5, 2, 10};
  for (const std::int64_t columns : {1, 13, 64})
    for (const EmptySlots empty : {EmptySlots::clear, EmptySlots::keep})
      compare(
          [&](TestMemory& m, Kernels& k) {
            const Matrix routing = m.matrix32(40, 4, 2), x = m.matrix(40, columns, 3), slots = m.matrix(50, columns, 4);
            const GateLoad load{m.vector32(5, 5), m.vector32(5, 6)};
            const Matrix dx = m.matrix(40, columns, 7), y = m.matrix(40, columns, 8),
                         d_slots = m.matrix(50, columns, 9);
            const Matrix d_weights = m.matrix32(40, 2, 10);
            k.gate(shape, m.matrix32(40, 5, 1), routing, load, Into::overwrite);
            k.dispatch_rows(x, routing, slots, empty);
            k.dispatch_rows_input_grad(slots, routing, dx);
            k.combine_rows(slots, routing, y);
            k.combine_rows_input_grad(x, slots, routing, d_slots, d_weights, empty);
            return std::vector{slots, dx, y, d_slots, d_weights};
          },
          2);
}

TEST_F(CudaExperts, ProductsOfTheRowsThatAreUsed) {
  const std::vector<ElementRange> used = {{0, 3}, {1, 4}, {0, 0}, {2, 4}, {0, 4}, {0, 0}};
  for (const Into into : {Into::overwrite, Into::add})
    compare(
        [&](TestMemory& m, Kernels& k) {
          const CapacityBlocks blocks{2, 3, 4, used};
          std::vector<Matrix> weights, d_weights, results;
          std::vector<Vector> biases, d_biases;
          for (std::uint64_t e = 0; e < 3; ++e) {
            weights.push_back(m.matrix(16, 24, 10 + e));
            biases.push_back(m.vector(16, 20 + e));
            d_weights.push_back(m.matrix(16, 24, 30 + e));
            d_biases.push_back(m.vector(16, 40 + e));
          }
          const Matrix x = m.matrix(24, 24, 1), y = m.matrix(24, 16, 2), dx = m.matrix(24, 24, 3),
                       dy = m.matrix(24, 16, 4);
          k.expert_linear(blocks, x, weights, biases, y);
          k.expert_linear_input_grad(blocks, dy, weights, dx);
          k.expert_linear_weight_grad(blocks, x, dy, d_weights, d_biases, into);
          results = d_weights;
          results.insert(results.end(), {y, dx});
          for (const Vector& bias : d_biases) results.push_back(as_matrix(bias));
          return results;
        },
        2);
}

}  // namespace
}  // namespace weft
