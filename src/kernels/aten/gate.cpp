#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"
#include "kernels/aten/vector_math.hpp"

namespace weft::aten {
namespace {

void softmax(const float* scores, std::int64_t count, float* probabilities) {
  const float inverse = 1.0F / exponentiate(scores, count, largest(scores, count), probabilities);
  for (std::int64_t i = 0; i < count; ++i) probabilities[i] *= inverse;
}

// Writes the indices of the largest scores, descending, as floats; the first of equal ones wins. The numbers are too
// small for a heap. Scores that are NaN still give different indices.
void choose(const float* scores, std::int64_t count, std::int64_t wanted, float* chosen) {
  for (std::int64_t j = 0; j < wanted; ++j) {
    std::int64_t best = -1;
    for (std::int64_t e = 0; e < count; ++e) {
      if (best >= 0 && !(scores[e] > scores[best])) continue;
      if (std::find(chosen, chosen + j, static_cast<float>(e)) == chosen + j) best = e;
    }
    chosen[j] = static_cast<float>(best);
  }
}

// Turns the expert of a choice into its slot.
class SlotGiver {
 public:
  SlotGiver(const GateShape& shape, float* choices)
      : capacity_(shape.capacity),
        taken_in_all_(shape.capacity_of_calls > 0 ? shape.capacity_of_calls : shape.capacity),
        choices_(choices),
        before_(choices_before(shape, choices)) {}
  void give(float& choice) {
    const auto expert = static_cast<std::int64_t>(choice);
    const auto taken = static_cast<std::int64_t>(choices_[expert]);
    const std::int64_t position = taken - static_cast<std::int64_t>(before_[expert]);
    choices_[expert] += 1.0F;
    const bool has_slot = taken < taken_in_all_ && position < capacity_;
    choice = static_cast<float>(has_slot ? expert * capacity_ + position : -1 - expert);
  }

 private:
  // Returns by expert the choices of earlier calls that have other slots. Belongs to the calling thread.
  static const float* choices_before(const GateShape& shape, const float* choices) {
    thread_local std::vector<float> before;
    before.assign(static_cast<std::size_t>(shape.experts), 0.0F);
    if (shape.capacity_of_calls > 0) std::copy_n(choices, shape.experts, before.begin());
    return before.data();
  }

  std::int64_t capacity_, taken_in_all_;
  float* choices_;
  const float* before_;
};

// Tokens by descending probability of their first choice; of equal ones the first.
std::span<const std::int64_t> by_priority(const Matrix& routing, const Matrix& probabilities) {
  thread_local std::vector<std::int64_t> tokens;
  tokens.resize(routing.rows);
  std::iota(tokens.begin(), tokens.end(), std::int64_t{0});
  const auto priority = [&](std::int64_t token) {
    const float p = row(probabilities, token)[static_cast<std::int64_t>(row(routing, token)[0])];
    return p >= 0 ? p : -1.0F;  // NaN has no order
  };
  std::ranges::sort(tokens, [&](std::int64_t a, std::int64_t b) {
    const float of_a = priority(a), of_b = priority(b);
    return of_a > of_b || (!(of_b > of_a) && a < b);
  });
  return tokens;
}

void give_slots(const GateShape& shape, const Matrix& routing, const Matrix& probabilities, float* choices) {
  SlotGiver giver(shape, choices);
  switch (shape.order) {
    case SlotOrder::token:
      for (std::int64_t r = 0; r < routing.rows; ++r) {
        for (std::int64_t j = 0; j < shape.top_k; ++j) giver.give(row(routing, r)[j]);
      }
      break;
    case SlotOrder::choice:
      for (std::int64_t j = 0; j < shape.top_k; ++j) {
        for (std::int64_t r = 0; r < routing.rows; ++r) giver.give(row(routing, r)[j]);
      }
      break;
    case SlotOrder::priority: {
      const std::span<const std::int64_t> tokens = by_priority(routing, probabilities);
      for (std::int64_t j = 0; j < shape.top_k; ++j) {
        for (const std::int64_t r : tokens) giver.give(row(routing, r)[j]);
      }
      break;
    }
  }
}

constexpr int kProbabilities = 5, kGradient = 4;  // slots of scratch; sum_rows has the first

}  // namespace

void AtenKernels::gate(const GateShape& shape, const Matrix& scores, const Matrix& routing, const GateLoad& load,
                       Into into) {
  const std::int64_t k = shape.top_k;
  const Matrix probabilities =
      Matrix::dense(scratch(kProbabilities, scores.rows * shape.experts).data(), scores.rows, shape.experts);
  in_ranges(scores.rows, row_grain(shape.experts), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* const of_token = row(scores, r);
      float *const p = row(probabilities, r), *const chosen = row(routing, r), *const weights = chosen + k;
      softmax(of_token, shape.experts, p);
      choose(of_token, shape.experts, k, chosen);
      float sum = 0;
      for (std::int64_t j = 0; j < k; ++j) sum += weights[j] = p[static_cast<std::int64_t>(chosen[j])];
      if (!shape.renormalise) continue;
      for (std::int64_t j = 0; j < k; ++j) weights[j] /= sum;
    }
  });
  sum_rows(probabilities, floats(load.probabilities), into);
  if (into == Into::overwrite) std::fill_n(floats(load.choices), shape.experts, 0.0F);
  give_slots(shape, routing, probabilities, floats(load.choices));
}

// The gradient g of a probability comes from its weight, through w = p / (sum of the chosen), and from the balance
// loss. The gradient of its score is p (g - the mean of g under p).
void AtenKernels::gate_input_grad(const GateShape& shape, const BalanceLoss& balance, const Matrix& d_weights,
                                  const Matrix& scores, const Matrix& routing, const GateLoad& load,
                                  const Matrix& d_scores) {
  const std::int64_t k = shape.top_k, experts = shape.experts;
  const auto tokens = static_cast<double>(balance.tokens);
  const auto of_choice = static_cast<float>(balance.coefficient * static_cast<double>(experts) /
                                            (tokens * tokens * static_cast<double>(k)));
  in_ranges(scores.rows, row_grain(experts), [&](std::int64_t begin, std::int64_t end) {
    float *const p = scratch(kProbabilities, experts).data(), *const g = scratch(kGradient, experts).data();
    for (std::int64_t r = begin; r < end; ++r) {
      softmax(row(scores, r), experts, p);
      for (std::int64_t e = 0; e < experts; ++e) g[e] = of_choice * floats(load.choices)[e];
      const float *const slots = row(routing, r), *const weights = slots + k, *const dw = row(d_weights, r);
      const auto expert = [&](std::int64_t j) {
        const auto slot = static_cast<std::int64_t>(slots[j]);
        return slot >= 0 ? slot / shape.capacity : -1 - slot;
      };
      float sum = 1, mean = 0;
      if (shape.renormalise) {
        sum = 0;
        for (std::int64_t j = 0; j < k; ++j) {
          sum += p[expert(j)];
          mean += dw[j] * weights[j];
        }
      }
      for (std::int64_t j = 0; j < k; ++j) g[expert(j)] += (dw[j] - mean) / sum;
      float inner = 0;
      for (std::int64_t e = 0; e < experts; ++e) inner += p[e] * g[e];
      float* const out = row(d_scores, r);
      for (std::int64_t e = 0; e < experts; ++e) out[e] = p[e] * (g[e] - inner);
    }
  });
}

}  // namespace weft::aten
