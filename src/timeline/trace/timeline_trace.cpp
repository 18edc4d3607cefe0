#include "timeline/trace/timeline_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

class TraceOfRank {
 public:
  TraceOfRank(const Timeline& timeline, std::int32_t rank, const std::string& file_name) : timeline_(timeline) {
    trace_.file = file_name;
    trace_.source = TraceSource::weft;
    trace_.rank = timeline.ranks[at(rank)].rank;
    // Measured steps vary: no length holds for all of them.
    if (!timeline.measured) trace_.step_time = Nanos{static_cast<std::int64_t>(std::llround(timeline.period_ns))};
    trace_.names = timeline.names;
    trace_.events = static_cast<std::int64_t>(timeline.spans.size());
    for (int kind = 0; kind < kTrafficKinds; ++kind) trace_.names.emplace_back(name_of(static_cast<TrafficKind>(kind)));
  }

  void add(const Span& span, std::int32_t position) {
    constexpr Nanos kMaxDuration{std::int64_t{1} << 53};  // sums of such times fit
    if (span.end - span.start > kMaxDuration) fail("{}: span {} is longer than 104 days", trace_.file, position);
    const TimelineOperation& operation = timeline_.operations[at(span.operation)];
    DeviceActivity activity;
    activity.start = span.start;
    activity.end = span.end;
    activity.issued = span.issued;
    activity.ready = span.ready;
    activity.name = operation.name;
    activity.stream = operation.queue.value;
    activity.position = position;
    if (operation.activity == Activity::transfer) {
      activity.kind = KernelKind::communication;
      activity.bytes = operation.bytes.value;
      activity.collective = collective_of(operation);
    }
    const auto [place, added] = step_of_.emplace(span.iteration, static_cast<std::int32_t>(steps_.size()));
    if (added) steps_.push_back({span.iteration, span.start, span.end});
    StepMark& step = steps_[at(place->second)];
    step.start = std::min(step.start, span.start);
    step.end = std::max(step.end, span.end);
    activity.step = place->second;
    trace_.device.push_back(activity);
    span_of_.emplace(std::pair{span.operation, span.iteration}, position);
  }

  DeviceTrace finish() {
    connect_launches(trace_);
    set_steps(trace_, std::move(steps_));
    add_dependencies();
    return std::move(trace_);
  }

 private:
  void add_dependencies() {
    if (timeline_.dependency_begin.empty()) return;
    std::map<std::int32_t, std::int32_t> index;  // by position
    for (std::size_t i = 0; i < trace_.device.size(); ++i) {
      index[trace_.device[i].position] = static_cast<std::int32_t>(i);
    }
    for (const auto& [key, position] : span_of_) {
      const auto [operation, iteration] = key;
      for (std::int32_t d = timeline_.dependency_begin[at(operation)];
           d < timeline_.dependency_begin[at(operation) + 1]; ++d) {
        const Dependency& wait = timeline_.dependencies[at(d)];
        const auto before = span_of_.find({wait.operation, iteration - wait.distance});
        if (before != span_of_.end()) trace_.dependencies.push_back({index[before->second], index[position]});
      }
    }
    std::sort(trace_.dependencies.begin(), trace_.dependencies.end(), [](const auto& a, const auto& b) {
      return a.before != b.before ? a.before < b.before : a.after < b.after;
    });
  }

  std::int32_t collective_of(const TimelineOperation& operation) {
    // Files of older versions say only what the transfer is for ("dp_grad").
    const auto traffic = static_cast<std::int32_t>(operation.traffic);
    const std::int32_t name = operation.collective >= 0 && at(operation.collective) < timeline_.names.size()
                                  ? operation.collective
                                  : static_cast<std::int32_t>(timeline_.names.size()) + traffic;
    const std::vector<std::int64_t> key = {name, operation.group, operation.group_size, operation.bytes.value,
                                           operation.transfer};
    const auto [place, added] = collectives_.emplace(key, static_cast<std::int32_t>(trace_.collectives.size()));
    if (added) {
      CollectiveFacts facts;
      facts.name = name;
      facts.group_name = operation.group;
      facts.group_size = operation.group_size;
      facts.sequence = operation.transfer;
      facts.in_elements = facts.out_elements = operation.bytes.value;
      facts.element_bytes = 1;
      trace_.collectives.push_back(facts);
    }
    return place->second;
  }

  const Timeline& timeline_;
  DeviceTrace trace_;
  std::map<std::int32_t, std::int32_t> step_of_;  // by iteration: index into steps_
  std::vector<StepMark> steps_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> span_of_;  // by operation and iteration: position
  std::map<std::vector<std::int64_t>, std::int32_t> collectives_;
};

}  // namespace

std::vector<DeviceTrace> traces_of_timeline(const Timeline& timeline, const std::string& file_name) {
  constexpr auto kFirst = std::numeric_limits<std::int32_t>::min(), kLast = std::numeric_limits<std::int32_t>::max();
  const Timeline unfolded = timeline.folded.empty() ? timeline : expanded(timeline, kFirst, kLast);
  std::vector<TraceOfRank> ranks;
  for (std::size_t i = 0; i < unfolded.ranks.size(); ++i) {
    ranks.emplace_back(unfolded, static_cast<std::int32_t>(i), file_name);
  }
  for (std::size_t i = 0; i < unfolded.spans.size(); ++i) {
    const std::int32_t rank = unfolded.operations[at(unfolded.spans[i].operation)].rank;
    ranks[at(rank)].add(unfolded.spans[i], static_cast<std::int32_t>(i));
  }
  std::vector<DeviceTrace> traces;
  for (TraceOfRank& rank : ranks) traces.push_back(rank.finish());
  return traces;
}

}  // namespace weft
