// What a library's collectives cost a step, as a trial of the serial step shows. Collectives that are timed one after
// the other miss what happens to them in a step: other communicators wait beside them, ranks come late, streams start.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cost/profile.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// By group and size: how many times as long as predicted compute waited for it.
using TrialRatios = std::map<std::pair<LibraryProfile::Group, Bytes>, double>;

// Both timelines are of the same step, in which no transfer runs beside compute. Messages are left out: what a stage of
// a pipeline waits for is mostly the other stage. So is what the predicted step does not wait for.
TrialRatios compare_trial(const Timeline& predicted, const Timeline& measured);

// Sizes that the step does not have get the ratio of the nearest one that it has, of the same group.
void scale_by_trial(const TrialRatios& ratios, LibraryProfile& library);

// One rank compares, all must know.
std::string to_text(const TrialRatios& ratios);
TrialRatios trial_ratios_from(const std::string& text);

}  // namespace weft
