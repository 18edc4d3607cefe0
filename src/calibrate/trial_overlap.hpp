// What transfers cost that run beside others and beside compute, as a trial of a step that hides them shows. Measured
// by themselves, a few collectives beside products promise more than a whole step of them keeps, and a search goes
// where the promise is largest.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace weft {

struct OverlapFacts {
  double at_once = 1;            // LibraryProfile::at_once
  double transfer_slowdown = 0;  // DeviceProfile::transfer_slowdown
  double compute_slowdown = 0;   // DeviceProfile::compute_slowdown
  friend bool operator==(const OverlapFacts&, const OverlapFacts&) = default;
};

// The step in seconds that is predicted under these facts. It gets no shorter as `at_once` falls or the slowdown rises.
using PredictedStep = std::function<double(const OverlapFacts&)>;

// Returns the facts under which the prediction is what was measured, the most favourable of them: first `at_once`
// falls, down to 1, then the slowdown rises, up to 2. Returns those assumed where the step was no longer than
// predicted.
OverlapFacts fit_overlap(const OverlapFacts& assumed, double measured_s, const PredictedStep& predicted);

// The steps of several plans, in one order.
using PredictedSteps = std::function<std::vector<double>(const OverlapFacts&)>;

// Returns the facts under which the predictions of all plans are closest to what was measured. Where many do, those
// close to `alone`, which were measured by themselves. The walk begins there and at `learnt`.
OverlapFacts fit_overlap_of_all(const OverlapFacts& alone, const OverlapFacts& learnt,
                                std::span<const double> measured_s, const PredictedSteps& predicted);

}  // namespace weft
