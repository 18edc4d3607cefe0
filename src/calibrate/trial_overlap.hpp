// What transfers cost that run beside others and beside compute, as a trial of a step that hides them shows. Measured
// by themselves, a few collectives beside products promise more than a whole step of them keeps, and a search goes
// where the promise is largest.
#pragma once

#include <functional>

namespace weft {

struct OverlapFacts {
  double at_once = 1;            // LibraryProfile::at_once
  double transfer_slowdown = 0;  // DeviceProfile::transfer_slowdown
  friend bool operator==(const OverlapFacts&, const OverlapFacts&) = default;
};

// The step in seconds that is predicted under these facts. It gets no shorter as `at_once` falls or the slowdown rises.
using PredictedStep = std::function<double(const OverlapFacts&)>;

// Returns the facts under which the prediction is what was measured, the most favourable of them: first `at_once`
// falls, down to 1, then the slowdown rises, up to 2. Returns those assumed where the step was no longer than
// predicted.
OverlapFacts fit_overlap(const OverlapFacts& assumed, double measured_s, const PredictedStep& predicted);

}  // namespace weft
