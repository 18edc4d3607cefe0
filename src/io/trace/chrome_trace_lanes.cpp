// First-fit over each queue's spans by start.
#include "io/trace/chrome_trace_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "io/trace/lane_allocator.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

}  // namespace

TraceLanes assign_lanes(const Timeline& timeline, std::int32_t first_iteration, std::int32_t last_iteration) {
  const auto& spans = timeline.spans;
  const auto operation_of = [&](std::int32_t i) -> const TimelineOperation& {
    return timeline.operations[at(spans[at(i)].operation)];
  };
  TraceLanes lanes;
  lanes.tid.assign(spans.size(), TraceLanes::kNotWritten);
  for (std::int32_t i = 0; at(i) < spans.size(); ++i) {
    const std::int32_t iteration = spans[at(i)].iteration;
    if (iteration >= first_iteration && iteration <= last_iteration) lanes.order.push_back(i);
  }
  const auto key = [&](std::int32_t i) {
    const Span& s = spans[at(i)];
    return std::tuple(operation_of(i).rank, operation_of(i).queue, s.start, s.end, s.iteration, s.operation, i);
  };
  std::sort(lanes.order.begin(), lanes.order.end(), [&](auto a, auto b) { return key(a) < key(b); });

  auto next = lanes.order.begin();
  for (std::int32_t rank = 0; at(rank) < timeline.ranks.size(); ++rank) {
    const auto& queues = timeline.ranks[at(rank)].queues;
    auto& threads = lanes.threads.emplace_back();
    for (const QueueId queue : queues.ids()) {
      LaneAllocator allocator;
      const auto first_tid = static_cast<std::int32_t>(threads.size()) + 1;
      for (; next != lanes.order.end(); ++next) {
        if (operation_of(*next).rank != rank || operation_of(*next).queue != queue) break;
        lanes.tid[at(*next)] = first_tid + allocator.take(spans[at(*next)].start, spans[at(*next)].end);
      }
      threads.push_back(queues[queue]);
      for (std::int32_t lane = 1; lane < allocator.count(); ++lane) {
        threads.push_back(fmt::format("{} (lane {})", queues[queue], lane + 1));
      }
    }
  }
  return lanes;
}

}  // namespace weft
