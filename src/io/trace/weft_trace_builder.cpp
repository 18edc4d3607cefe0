#include "io/trace/weft_trace_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxProcesses = 1'000'000;

std::int64_t integer_in(std::string_view text) {
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, 0x7fffffff));
}

// "predicted stage 0 (rank 3, ×8)": the number after the last "rank ", and the word before everything.
Rank rank_in(std::string_view name) {
  const std::size_t place = name.rfind("rank ");
  if (place == std::string_view::npos) return {};
  const std::int64_t rank = integer_in(name.substr(place + 5));
  return rank < 0 ? Rank{} : Rank{narrow(rank)};
}

std::string label_in(std::string_view name) {
  for (const std::string_view label : {"predicted", "measured"}) {
    if (name.starts_with(label) && name.size() > label.size() && name[label.size()] == ' ') return std::string(label);
  }
  return {};
}

// The activity on the stream that covers the time: the last that has begun.
std::int32_t activity_at(const DeviceTrace& trace, const std::vector<std::int32_t>& lane, Nanos at) {
  auto after = std::upper_bound(lane.begin(), lane.end(), at,
                                [&](Nanos t, std::int32_t i) { return t < trace.device[i].start; });
  return after == lane.begin() ? kAbsent : *--after;
}

}  // namespace

void WeftTraceBuilder::add_activity(const ParsedEvent& event, Process& process) {
  DeviceActivity activity;
  activity.start = event.start;
  activity.end = event.start + std::max(event.duration, Nanos{});
  activity.issued = event.issued;
  activity.ready = event.ready;
  activity.name = process.names.number_of(event.name);
  activity.stream = narrow(integer_in(event.thread));
  activity.position = static_cast<std::int32_t>(events_ - 1);
  // Only transfers have bytes, possibly 0.
  if (event.bytes >= 0) {
    activity.kind = KernelKind::communication;
    activity.bytes = event.bytes;
    CollectiveFacts facts;
    // Files of older versions say only what the transfer is for ("dp_grad").
    facts.name = process.names.number_of(event.collective.empty() ? event.category_text : event.collective);
    if (!event.group.empty()) facts.group_name = process.names.number_of(event.group);
    facts.group_size = narrow(event.group_size);
    facts.in_elements = facts.out_elements = event.bytes;
    facts.element_bytes = 1;
    facts.sequence = event.transfer;
    const std::vector<std::int64_t> key = {facts.name, facts.group_name, facts.group_size, facts.in_elements,
                                           facts.sequence};
    const auto [found, is_new] =
        process.collectives.emplace(key, static_cast<std::int32_t>(process.trace.collectives.size()));
    if (is_new) process.trace.collectives.push_back(facts);
    activity.collective = found->second;
  }
  const auto [place, added] = process.step_of.emplace(event.iteration, static_cast<std::int32_t>(process.steps.size()));
  if (added) process.steps.push_back({event.iteration, activity.start, activity.end});
  StepMark& step = process.steps[place->second];
  step.start = std::min(step.start, activity.start);
  step.end = std::max(step.end, activity.end);
  activity.step = place->second;
  process.trace.device.push_back(activity);
}

void WeftTraceBuilder::add(const ParsedEvent& event) {
  ++events_;
  const std::int64_t pid = integer_in(event.process);
  Process& process = processes_[pid];
  if (static_cast<std::int64_t>(processes_.size()) > kMaxProcesses) fail("more than {} processes", kMaxProcesses);
  switch (event.phase) {
    case 'M':
      if (event.name == "process_name") process.name = event.label;
      return;
    case 's':
      if (event.start != kNoTime) {
        process.flows.from.push_back({event.flow, {event.start, narrow(integer_in(event.thread))}});
      }
      return;
    case 'f':
      if (event.start != kNoTime) {
        process.flows.to.push_back({event.flow, {event.start, narrow(integer_in(event.thread))}});
      }
      return;
    case 'X':
      // Exposed stretches are drawn on a thread of their own and are not activities.
      if (event.category_text != "exposed" && event.start != kNoTime && event.duration != kNoTime) {
        add_activity(event, process);
      }
      return;
    default:
      return;
  }
}

DeviceTrace WeftTraceBuilder::finish_process(Process& process, const DeviceTrace& about) {
  DeviceTrace trace = std::move(process.trace);
  trace.source = TraceSource::weft;
  trace.file = about.file;
  trace.warnings = about.warnings;
  trace.step_time = about.step_time;
  trace.names = process.names.take();
  trace.rank = rank_in(process.name);
  trace.label = label_in(process.name);
  connect_launches(trace);
  set_steps(trace, std::move(process.steps));

  std::map<std::int32_t, std::vector<std::int32_t>> lanes;
  for (std::size_t i = 0; i < trace.device.size(); ++i) {
    lanes[trace.device[i].stream].push_back(static_cast<std::int32_t>(i));
  }
  std::map<std::int64_t, std::int32_t> before;
  for (const auto& [id, end] : process.flows.from) before[id] = activity_at(trace, lanes[end.stream], end.at);
  for (const auto& [id, end] : process.flows.to) {
    // An arrow from another rank begins in that rank's process.
    const auto found = before.find(id);
    if (found == before.end() || found->second == kAbsent) continue;
    const std::int32_t after = activity_at(trace, lanes[end.stream], end.at);
    if (after != kAbsent && after != found->second) trace.dependencies.push_back({found->second, after});
  }
  std::sort(trace.dependencies.begin(), trace.dependencies.end(), [](const auto& a, const auto& b) {
    return a.before != b.before ? a.before < b.before : a.after < b.after;
  });
  return trace;
}

std::vector<DeviceTrace> WeftTraceBuilder::finish(const DeviceTrace& about) {
  std::vector<DeviceTrace> traces;
  for (auto& [pid, process] : processes_) {
    if (process.trace.device.empty()) continue;
    traces.push_back(finish_process(process, about));
    traces.back().events = events_;
  }
  return traces;
}

}  // namespace weft
