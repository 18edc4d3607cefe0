#include "calibrate/trial_overlap.hpp"

#include <algorithm>

namespace weft {
namespace {

constexpr double kLargestSlowdown = 2;

// Between two facts, of which the first predicts too short a step: as far from the first as is needed.
OverlapFacts between(const OverlapFacts& from, const OverlapFacts& to, double measured_s,
                     const PredictedStep& predicted) {
  constexpr int kHalvings = 12;
  const auto at = [&](double part) {
    return OverlapFacts{from.at_once + part * (to.at_once - from.at_once),
                        from.transfer_slowdown + part * (to.transfer_slowdown - from.transfer_slowdown)};
  };
  double short_of = 0, enough = 1;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (short_of + enough) / 2;
    (predicted(at(middle)) < measured_s ? short_of : enough) = middle;
  }
  return at(enough);
}

}  // namespace

OverlapFacts fit_overlap(const OverlapFacts& assumed, double measured_s, const PredictedStep& predicted) {
  if (predicted(assumed) >= measured_s) return assumed;
  const OverlapFacts one_at_once{1, assumed.transfer_slowdown};
  if (predicted(one_at_once) >= measured_s) return between(assumed, one_at_once, measured_s, predicted);
  const OverlapFacts slowest{1, std::max(kLargestSlowdown, assumed.transfer_slowdown)};
  return between(one_at_once, slowest, measured_s, predicted);
}

}  // namespace weft
