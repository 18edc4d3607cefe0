#include "calibrate/trial_overlap.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr double kLargestSlowdown = 2;
// To be twice as far from what was measured alone counts as much as predictions that are 1.4 % off.
constexpr double kWeightOfAlone = 0.0004;
constexpr double kFirstFactor = 1.6, kLastFactor = 1.04;  // of the steps of a walk
constexpr double kLeastSlowdown = 0.02;                   // whatever is below it counts as this

double square(double x) {
  return x * x;
}

double distance(const OverlapFacts& a, const OverlapFacts& b) {
  const auto apart = [](double x, double y) {
    return square(std::log(std::max(x, kLeastSlowdown) / std::max(y, kLeastSlowdown)));
  };
  return apart(a.at_once, b.at_once) + apart(a.transfer_slowdown, b.transfer_slowdown) +
         apart(a.compute_slowdown, b.compute_slowdown);
}

// One of the facts changed by a factor. One transfer at a time moves no fewer bytes than several.
std::vector<OverlapFacts> neighbours(const OverlapFacts& of, double factor) {
  std::vector<OverlapFacts> found;
  for (const double by : {factor, 1 / factor}) {
    for (double OverlapFacts::* const slowdown : {&OverlapFacts::transfer_slowdown, &OverlapFacts::compute_slowdown}) {
      found.push_back(of);
      found.back().*slowdown = std::min(kLargestSlowdown, std::max(of.*slowdown, kLeastSlowdown) * by);
    }
    found.push_back(of);
    found.back().at_once = std::max(1.0, of.at_once * by);
  }
  return found;
}

// Between two facts, of which the first predicts too short a step: as far from the first as is needed.
OverlapFacts between(const OverlapFacts& from, const OverlapFacts& to, double measured_s,
                     const PredictedStep& predicted) {
  constexpr int kHalvings = 12;
  const auto at = [&](double part) {
    return OverlapFacts{from.at_once + part * (to.at_once - from.at_once),
                        from.transfer_slowdown + part * (to.transfer_slowdown - from.transfer_slowdown),
                        from.compute_slowdown};
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
  const OverlapFacts one_at_once{1, assumed.transfer_slowdown, assumed.compute_slowdown};
  if (predicted(one_at_once) >= measured_s) return between(assumed, one_at_once, measured_s, predicted);
  const OverlapFacts slowest{1, std::max(kLargestSlowdown, assumed.transfer_slowdown), assumed.compute_slowdown};
  return between(one_at_once, slowest, measured_s, predicted);
}

OverlapFacts fit_overlap_of_all(const OverlapFacts& alone, const OverlapFacts& learnt,
                                std::span<const double> measured_s, const PredictedSteps& predicted) {
  const auto error = [&](const OverlapFacts& facts) {
    const std::vector<double> steps = predicted(facts);
    WEFT_CHECK(steps.size() == measured_s.size());
    double sum = kWeightOfAlone * distance(facts, alone);
    for (std::size_t i = 0; i < steps.size(); ++i) sum += square(std::log(steps[i] / measured_s[i]));
    return sum;
  };
  OverlapFacts best = alone;
  double least = error(best);
  for (const OverlapFacts& begin : {alone, learnt}) {
    OverlapFacts at = begin;
    double here = error(at);
    for (double factor = kFirstFactor; factor > kLastFactor;) {
      bool helps = false;
      for (const OverlapFacts& next : neighbours(at, factor)) {
        const double there = error(next);
        if (there >= here) continue;
        at = next;
        here = there;
        helps = true;
      }
      if (!helps) factor = std::sqrt(factor);
    }
    if (here >= least) continue;
    best = at;
    least = here;
  }
  return best;
}

}  // namespace weft
