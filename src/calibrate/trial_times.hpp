// What operations and a library's collectives take in a step, as a trial of the serial step shows. What is timed by
// itself misses what happens in a step: other communicators wait beside it, ranks come late, streams start, clocks
// differ.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "cost/profile.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// How many times as long as predicted. Of several steps the one in the middle counts: a hiccup is not what a step
// takes.
struct TrialRatios {
  std::map<std::string, double> compute;                                // the operations of a phase, by its name
  std::map<std::pair<LibraryProfile::Group, Bytes>, double> transfers;  // what compute waited for them
  friend bool operator==(const TrialRatios&, const TrialRatios&) = default;
};

// Both timelines are of the same step, in which no transfer runs beside compute. Messages are left out: what a stage of
// a pipeline waits for is mostly the other stage. So is what the predicted step does not wait for.
TrialRatios compare_trial(const Timeline& predicted, const Timeline& measured);

// Sizes of transfers that the step does not have get the ratio of the nearest one that it has, of the same group.
void scale_by_trial(const TrialRatios& ratios, LibraryProfile& library);
// The operations that were measured.
void scale_by_trial(const TrialRatios& ratios, DeviceProfile& device);

// One rank compares, all must know.
std::string to_text(const TrialRatios& ratios);
TrialRatios trial_ratios_from(const std::string& text);

}  // namespace weft
