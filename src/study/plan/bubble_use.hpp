// How much of a step devices compute, with and without the work that may wait (planner/schedule/extra_work.hpp): as
// PipeFisher (Osawa et al. 2022) reports it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cost/profile.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

// Means over all devices.
struct BubbleUse {
  double extra_s = 0;  // of work that may wait, in a step
  double step_s = 0;
  double compute_s = 0;  // all compute of a step, that work among it
  double share_without() const { return (compute_s - extra_s) / step_s; }
  double share() const { return compute_s / step_s; }
};

// Returns what work of a step may wait: "K-FAC's curvature and inversions, 2 tasks".
std::string extra_work_in_words(const Layout& layout);

// Nothing where the plan has no such work.
std::optional<BubbleUse> bubble_use(const PolicyStudy& study);

// Returns in how many steps the time in which devices of the same pipeline compute nothing is enough for all of K-FAC's
// curvature and inversions, on the device that needs the most steps. Throws Error where a device has no such time.
std::int64_t kfac_interval_of_bubbles(const Transformer& model, const ClusterSpec& cluster, Layout layout,
                                      const Profile& profile);

}  // namespace weft
