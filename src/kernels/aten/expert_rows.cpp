// Rows on their way to the experts' slots and back.
#include <algorithm>
#include <vector>

#include "kernels/aten/aten_kernels.hpp"
#include "kernels/aten/loops.hpp"

namespace weft::aten {
namespace {

// Which choice has a slot.
struct SlotOwner {
  std::int64_t token = -1, choice = 0;
};

// Which choice owns each slot, so that threads write different rows and every row once. Belongs to the calling thread.
std::span<const SlotOwner> owners_of(const Matrix& routing, std::int64_t slots) {
  thread_local std::vector<SlotOwner> owners;
  owners.assign(slots, {});
  const std::int64_t k = routing.columns / 2;
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    for (std::int64_t j = 0; j < k; ++j) {
      const float slot = row(routing, r)[j];
      if (slot >= 0) owners[static_cast<std::size_t>(slot)] = {r, j};
    }
  }
  return owners;
}

// Calls fill(slot's row, owner) of every slot that a choice has.
template <class Fill>
void fill_slots(const Matrix& routing, const Matrix& slots, EmptySlots empty, const Fill& fill) {
  const std::span<const SlotOwner> owners = owners_of(routing, slots.rows);
  in_ranges(slots.rows, row_grain(slots.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin; s < end; ++s) {
      const SlotOwner& owner = owners[s];
      if (owner.token >= 0) {
        fill(row(slots, s), owner);
      } else if (empty == EmptySlots::clear) {
        std::fill_n(row(slots, s), slots.columns, 0.0F);
      }
    }
  });
}

// out = the sum of a token's rows, each times weight(weights of the token, choice).
template <class Weight>
void sum_of_slots(const Matrix& slots, const Matrix& routing, const Matrix& out, const Weight& weight) {
  const std::int64_t k = routing.columns / 2;
  in_ranges(out.rows, row_grain(out.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      float* const sum = row(out, r);
      std::fill_n(sum, out.columns, 0.0F);
      const float* const of_token = row(routing, r);
      for (std::int64_t j = 0; j < k; ++j) {
        if (of_token[j] < 0) continue;
        const float* const from = row(slots, static_cast<std::int64_t>(of_token[j]));
        const float factor = weight(of_token + k, j);
        for (std::int64_t c = 0; c < out.columns; ++c) sum[c] += factor * from[c];
      }
    }
  });
}

}  // namespace

bool AtenKernels::routing_fits(const Matrix& routing, std::int64_t slots) {
  const auto limit = static_cast<float>(slots);
  for (std::int64_t r = 0; r < routing.rows; ++r) {
    const float* const of_token = row(routing, r);
    if (!std::all_of(of_token, of_token + routing.columns / 2, [&](float slot) { return slot < limit; })) return false;
  }
  return true;
}

void AtenKernels::dispatch_rows(const Matrix& x, const Matrix& routing, const Matrix& slots, EmptySlots empty) {
  fill_slots(routing, slots, empty,
             [&](float* to, const SlotOwner& owner) { std::copy_n(row(x, owner.token), x.columns, to); });
}

void AtenKernels::dispatch_rows_input_grad(const Matrix& d_slots, const Matrix& routing, const Matrix& dx) {
  sum_of_slots(d_slots, routing, dx, [](const float*, std::int64_t) { return 1.0F; });
}

void AtenKernels::combine_rows(const Matrix& slots, const Matrix& routing, const Matrix& y) {
  sum_of_slots(slots, routing, y, [](const float* weights, std::int64_t j) { return weights[j]; });
}

void AtenKernels::combine_rows_input_grad(const Matrix& dy, const Matrix& slots, const Matrix& routing,
                                          const Matrix& d_slots, const Matrix& d_weights, EmptySlots empty) {
  const std::int64_t k = routing.columns / 2;
  in_ranges(dy.rows, row_grain(k * dy.columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float *const of_token = row(routing, r), *const d = row(dy, r);
      for (std::int64_t j = 0; j < k; ++j) {
        float product = 0;
        if (of_token[j] >= 0) {
          const float* const from = row(slots, static_cast<std::int64_t>(of_token[j]));
          for (std::int64_t c = 0; c < dy.columns; ++c) product += d[c] * from[c];
        }
        row(d_weights, r)[j] = product;
      }
    }
  });
  fill_slots(routing, d_slots, empty, [&](float* to, const SlotOwner& owner) {
    const float* const d = row(dy, owner.token);
    const float weight = row(routing, owner.token)[k + owner.choice];
    for (std::int64_t c = 0; c < dy.columns; ++c) to[c] = weight * d[c];
  });
}

}  // namespace weft::aten
