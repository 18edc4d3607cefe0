// Names of traffic, and what every timeline must satisfy before anyone indexes with what it holds.
#include "timeline/timeline.hpp"

#include <array>
#include <limits>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr EnumArray<TrafficKind, std::string_view, kTrafficKinds> kTrafficNames = {
    "dp_grad", "param_gather", "tp", "pp", "cp", "ep", "other"};

// 73 years: sums and differences of two such times do not overflow.
constexpr std::int64_t kMaxTime = std::int64_t{1} << 61;

bool in_time(Nanos t) {
  return t.value >= -kMaxTime && t.value <= kMaxTime;
}

bool in_range(std::int64_t index, std::size_t size) {
  return index >= 0 && index < static_cast<std::int64_t>(size);
}

void check_operation(const Timeline& timeline, std::size_t id) {
  const TimelineOperation& operation = timeline.operations[id];
  if (!in_range(operation.rank, timeline.ranks.size())) {
    fail("timeline: operation {}: rank {} is not in 0..{}", id, operation.rank,
         static_cast<std::int64_t>(timeline.ranks.size()) - 1);
  }
  const auto& queues = timeline.ranks[operation.rank].queues;
  if (!queues.contains(operation.queue)) {
    fail("timeline: operation {}: queue {} is not in 0..{}", id, operation.queue.value, std::ssize(queues) - 1);
  }
  if (static_cast<int>(operation.traffic) >= kTrafficKinds) {
    fail("timeline: operation {}: traffic {} is not in 0..{}", id, static_cast<int>(operation.traffic),
         kTrafficKinds - 1);
  }
  if (operation.alone < Nanos{} || !in_time(operation.alone)) {
    fail("timeline: operation {}: {} ns alone, 0 to 2^61 is allowed", id, operation.alone.value);
  }
}

void check_span(const Timeline& timeline, std::size_t id) {
  const Span& span = timeline.spans[id];
  if (!in_range(span.operation, timeline.operations.size())) {
    fail("timeline: span {}: operation {} is not in 0..{}", id, span.operation,
         static_cast<std::int64_t>(timeline.operations.size()) - 1);
  }
  for (const Nanos t : {span.issued, span.ready, span.start, span.end}) {
    if (!in_time(t)) fail("timeline: span {}: time {} ns is not within 2^61 of zero", id, t.value);
  }
  if (span.end < span.start) {
    fail("timeline: span {}: it ends at {} ns, before its start at {} ns", id, span.end.value, span.start.value);
  }
}

void check_folded(const Timeline& timeline, std::size_t id) {
  const FoldedSpan& span = timeline.folded[id];
  if (span.count < 1 || !in_range(span.first, timeline.operations.size()) ||
      !in_range(std::int64_t{span.first} + span.count - 1, timeline.operations.size())) {
    fail("timeline: folded span {}: {} operations from {} on are not in 0..{}", id, span.count, span.first,
         static_cast<std::int64_t>(timeline.operations.size()) - 1);
  }
  if (!in_time(span.start))
    fail("timeline: folded span {}: time {} ns is not within 2^61 of zero", id, span.start.value);
}

void check_dependencies(const Timeline& timeline) {
  const auto& begin = timeline.dependency_begin;
  if (begin.empty()) return;
  const bool whole = begin.size() == timeline.operations.size() + 1 && begin.front() == 0 &&
                     static_cast<std::size_t>(begin.back()) == timeline.dependencies.size();
  if (!whole) {
    fail("timeline: dependency_begin holds {} entries, not one for each of {} operations and the end", begin.size(),
         timeline.operations.size());
  }
  for (std::size_t i = 1; i < begin.size(); ++i) {
    if (begin[i] < begin[i - 1]) fail("timeline: dependency_begin descends at operation {}", i - 1);
  }
  for (std::size_t i = 0; i < timeline.dependencies.size(); ++i) {
    const Dependency& dependency = timeline.dependencies[i];
    if (!in_range(dependency.operation, timeline.operations.size())) {
      fail("timeline: dependency {}: operation {} is not in 0..{}", i, dependency.operation,
           static_cast<std::int64_t>(timeline.operations.size()) - 1);
    }
    if (dependency.distance < 0) fail("timeline: dependency {}: distance {} is negative", i, dependency.distance);
  }
}

}  // namespace

std::string_view name_of(TrafficKind kind) {
  return kTrafficNames[kind];
}

void check_timeline(const Timeline& timeline) {
  for (std::size_t i = 0; i < timeline.ranks.size(); ++i) {
    if (timeline.ranks[i].ranks < 1) {
      fail("timeline: rank {} stands for {} ranks, at least 1 is allowed", i, timeline.ranks[i].ranks);
    }
  }
  for (std::size_t i = 0; i < timeline.operations.size(); ++i) check_operation(timeline, i);
  check_dependencies(timeline);
  if (!timeline.folded.empty() && timeline.dependency_begin.empty()) {
    fail("timeline: {} folded spans, none are allowed where dependencies are unknown", timeline.folded.size());
  }
  for (std::size_t i = 0; i < timeline.folded.size(); ++i) check_folded(timeline, i);
  auto executions = static_cast<std::int64_t>(timeline.spans.size());
  for (const FoldedSpan& span : timeline.folded) executions += span.count;
  if (executions > std::numeric_limits<std::int32_t>::max()) {
    fail("timeline: {} spans, at most {} are allowed", executions, std::numeric_limits<std::int32_t>::max());
  }
  for (std::size_t i = 0; i < timeline.spans.size(); ++i) check_span(timeline, i);
  if (!in_time(timeline.steady_begin)) {
    fail("timeline: the steady state begins at {} ns, not within 2^61 of zero", timeline.steady_begin.value);
  }
  if (!timeline.memory.empty() && timeline.memory.size() != timeline.ranks.size()) {
    fail("timeline: memory of {} ranks, none or {} are allowed", timeline.memory.size(), timeline.ranks.size());
  }
}

}  // namespace weft
