#include "timeline/trace/overlap_bound.hpp"

#include <algorithm>
#include <map>

namespace weft {
namespace {

// Limit on the computations that a communication lists, so that a long one beside short kernels costs no more.
constexpr std::size_t kMaxPlaces = 32;

struct PlaceRange {
  std::int32_t begin = 0, end = 0;  // places on a stream
};

class BoundFinder {
 public:
  BoundFinder(const DeviceTrace& trace, const DeviceOrder& order, const DevicePrecedence& precedence,
              const ExposedCommunication& exposed)
      : trace_(trace),
        order_(order),
        precedence_(precedence),
        free_(exposed.computation.without(exposed.communication)),
        sums_(order.streams.size()),
        steps_(order.streams.size()) {
    for (std::size_t s = 0; s < order.streams.size(); ++s) {
      const std::vector<std::int32_t>& activities = order.streams[s].activities;
      sums_[s].reserve(activities.size() + 1);
      sums_[s].push_back({0});
      for (std::size_t place = 0; place < activities.size(); ++place) {
        sums_[s].push_back(sums_[s].back() + free_time(activities[place]));
        const auto p = static_cast<std::int32_t>(place);
        PlaceRange& range = steps_[s].try_emplace(step_of(activities[place]), PlaceRange{p, p}).first->second;
        range.end = p + 1;
      }
    }
  }

  OverlapBound find(const ExposedCommunication& exposed) {
    OverlapBound bound;
    struct StepSums {
      Nanos exposed, possible, free;
    };
    std::map<std::int32_t, StepSums> steps;
    for (const std::int32_t i : order_.activities) steps[step_of(i)].free += free_time(i);
    for (std::size_t i = 0; i < exposed.stretches.size();) {
      const std::int32_t activity = exposed.stretches[i].activity;
      Nanos time{0};
      for (; i < exposed.stretches.size() && exposed.stretches[i].activity == activity; ++i) {
        time += exposed.stretches[i].end - exposed.stretches[i].begin;
      }
      bound.communications.push_back(hideable(activity, time));
      StepSums& sums = steps[step_of(activity)];
      sums.exposed += time;
      sums.possible += bound.communications.back().possible();
    }
    for (const auto& [step, sums] : steps) {
      bound.exposed += sums.exposed;
      bound.gain_any_order += std::min(sums.exposed, sums.free);
      bound.gain_same_order += std::min(sums.possible, sums.free);
    }
    // Computation on several streams at once counts once.
    bound.gain_any_order = std::min(bound.gain_any_order, free_.total());
    bound.gain_same_order = std::min(bound.gain_same_order, free_.total());
    std::sort(bound.communications.begin(), bound.communications.end(),
              [](const Hideable& a, const Hideable& b) { return a.activity < b.activity; });
    return bound;
  }

 private:
  const DeviceActivity& activity(std::int32_t i) const { return trace_.device[i]; }
  std::int32_t step_of(std::int32_t i) const { return activity(i).step; }
  // The time of a computation in which nothing communicates.
  Nanos free_time(std::int32_t i) const {
    if (activity(i).kind != KernelKind::computation) return {0};
    return free_.within(activity(i).start, activity(i).end);
  }
  Nanos sum(std::size_t stream, PlaceRange range) const {
    if (range.end <= range.begin) return {0};
    return sums_[stream][range.end] - sums_[stream][range.begin];
  }

  Hideable hideable(std::int32_t communication, Nanos exposed) const {
    Hideable result;
    result.activity = communication;
    result.exposed = exposed;
    Nanos left = exposed;
    std::vector<std::pair<std::size_t, PlaceRange>> earlier;
    for (std::size_t s = 0; s < order_.streams.size(); ++s) {
      const auto stream = static_cast<std::int32_t>(s);
      if (stream == order_.stream[communication]) continue;
      const auto step = steps_[s].find(step_of(communication));
      if (step == steps_[s].end()) continue;
      const PlaceRange range{std::max(step->second.begin, precedence_.count_before(communication, stream)),
                             std::min(step->second.end, precedence_.first_after(communication, stream))};
      if (range.end <= range.begin) continue;
      // Computations beside it have no free time then, and their time before its start counts as earlier.
      const PlaceRange later{first_from(s, range, activity(communication).end), range.end};
      const PlaceRange before{range.begin, later.begin};
      result.later += sum(s, later);
      result.earlier += sum(s, before);
      for (std::int32_t p = later.begin; p < later.end && more(result, left); ++p) take(result, s, p, left);
      earlier.emplace_back(s, before);
    }
    for (const auto& [s, range] : earlier) {
      for (std::int32_t p = range.end; p > range.begin && more(result, left); --p) take(result, s, p - 1, left);
    }
    return result;
  }

  static bool more(const Hideable& result, Nanos left) { return left > Nanos{0} && result.nearest.size() < kMaxPlaces; }
  void take(Hideable& result, std::size_t stream, std::int32_t place, Nanos& left) const {
    const std::int32_t computation = order_.streams[stream].activities[place];
    const Nanos time = std::min(left, free_time(computation));
    if (time <= Nanos{0}) return;
    left -= time;
    result.nearest.push_back({computation, time});
  }
  // The first place in the range that starts at t or later.
  std::int32_t first_from(std::size_t stream, PlaceRange range, Nanos t) const {
    const std::vector<std::int32_t>& activities = order_.streams[stream].activities;
    const auto found = std::lower_bound(activities.begin() + range.begin, activities.begin() + range.end, t,
                                        [&](std::int32_t i, Nanos time) { return activity(i).start < time; });
    return static_cast<std::int32_t>(found - activities.begin());
  }

  const DeviceTrace& trace_;
  const DeviceOrder& order_;
  const DevicePrecedence& precedence_;
  CoveredTime free_;                                       // computing, not communicating
  std::vector<std::vector<Nanos>> sums_;                   // by stream: free time of the first places
  std::vector<std::map<std::int32_t, PlaceRange>> steps_;  // by stream, then step
};

}  // namespace

OverlapBound bound_overlap(const DeviceTrace& trace, const DeviceOrder& order, const DevicePrecedence& precedence,
                           const ExposedCommunication& exposed) {
  return BoundFinder(trace, order, precedence, exposed).find(exposed);
}

}  // namespace weft
