// The oracle of gates: who gets which slot, by definition rather than by counting, and scores that load experts
// unevenly.
#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "kernels/experts.hpp"
#include "kernels/test_tensors.hpp"

namespace weft {

// A choice of a token as the definition of the orders speaks of it.
struct TestChoice {
  std::int64_t token = 0, rank = 0, expert = 0;  // the token's rank-th choice
  double priority = 0;                           // probability of the token's first choice
};

inline bool stands_before(SlotOrder order, const TestChoice& a, const TestChoice& b) {
  switch (order) {
    case SlotOrder::token:
      return std::tie(a.token, a.rank) < std::tie(b.token, b.rank);
    case SlotOrder::choice:
      return std::tie(a.rank, a.token) < std::tie(b.rank, b.token);
    case SlotOrder::priority:
      return std::tuple(a.rank, -a.priority, a.token) < std::tuple(b.rank, -b.priority, b.token);
  }
  return false;
}

struct TestGate {
  std::vector<TestChoice> choices;   // token by token
  std::vector<std::int64_t> slots;   // of each; -1 - expert where it is dropped
  std::vector<std::int64_t> counts;  // by expert, dropped ones too
};

// The position of a choice is the number of choices of the same expert that stand before it.
inline TestGate brute_force_gate(const GateShape& shape, const at::Tensor& scores) {
  TestGate gate;
  gate.counts.resize(shape.experts);
  const at::Tensor probabilities = at::softmax(scores.to(at::kDouble), 1);
  for (std::int64_t t = 0; t < scores.size(0); ++t) {
    std::vector<std::pair<float, std::int64_t>> ranked;
    for (std::int64_t e = 0; e < shape.experts; ++e) {
      ranked.emplace_back(-scores.data_ptr<float>()[t * shape.experts + e], e);
    }
    std::ranges::sort(ranked);
    for (std::int64_t j = 0; j < shape.top_k; ++j) {
      const std::int64_t expert = ranked[j].second;
      const double priority = probabilities.data_ptr<double>()[t * shape.experts + ranked[0].second];
      gate.choices.push_back({t, j, expert, priority});
      ++gate.counts[expert];
    }
  }
  for (const TestChoice& choice : gate.choices) {
    const auto before = std::ranges::count_if(gate.choices, [&](const TestChoice& other) {
      return other.expert == choice.expert && stands_before(shape.order, other, choice);
    });
    gate.slots.push_back(before < shape.capacity ? choice.expert * shape.capacity + before : -1 - choice.expert);
  }
  return gate;
}

// Tokens prefer low experts the more, the larger `skew` is; at 0 all alike.
inline at::Tensor skewed_scores(std::int64_t tokens, std::int64_t experts, double skew, std::uint64_t seed) {
  return random_tensor({tokens, experts}, seed) - skew * at::arange(experts, at::kFloat).view({1, experts});
}

// What a gate writes.
struct GateOutput {
  GateOutput(const GateShape& shape, std::int64_t tokens)
      : routing(tokens, 2 * shape.top_k),
        choices(at::full({shape.experts}, -55.0)),
        probabilities(at::full({shape.experts}, -55.0)) {}
  GateLoad load() const { return {vector_of(choices), vector_of(probabilities)}; }

  SlicedTensor routing;
  at::Tensor choices, probabilities;
};

}  // namespace weft
