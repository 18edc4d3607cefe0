#include "io/trace/device_trace_builder.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace weft {
namespace {

constexpr std::string_view kStepPrefix = "ProfilerStep#";

bool is_step(std::string_view name) {
  return name.starts_with(kStepPrefix) && name.size() > kStepPrefix.size() && name[kStepPrefix.size()] >= '0' &&
         name[kStepPrefix.size()] <= '9';
}

SyncKind sync_kind(std::string_view name) {
  if (name == "Stream Wait Event") return SyncKind::stream_wait_event;
  if (name == "Event Sync") return SyncKind::event_sync;
  if (name == "Stream Sync") return SyncKind::stream_sync;
  if (name == "Context Sync") return SyncKind::context_sync;
  return SyncKind::other;
}

constexpr std::int64_t kHostStream = 4294967295;  // -1 in 32 bits, as older profilers write it

// Streams are small numbers except where they are addresses.
std::int32_t narrow_stream(std::int64_t stream) {
  if (stream == kHostStream) return -1;
  if (stream >= -1 && stream <= std::numeric_limits<std::int32_t>::max()) return static_cast<std::int32_t>(stream);
  return static_cast<std::int32_t>(stream & std::numeric_limits<std::int32_t>::max());
}

std::int32_t narrow_size(std::int64_t value) {
  return value < 0 ? 0
                   : static_cast<std::int32_t>(std::min<std::int64_t>(value, std::numeric_limits<std::int32_t>::max()));
}

}  // namespace

std::int32_t DeviceTraceBuilder::thread_of(const ParsedEvent& event) {
  if (last_thread_number_ != kAbsent && last_thread_.second == event.thread && last_thread_.first == event.process) {
    return last_thread_number_;
  }
  last_thread_ = {event.process, event.thread};
  const auto [place, added] = threads_.emplace(last_thread_, static_cast<std::int32_t>(trace_.threads.size()));
  if (added) trace_.threads.push_back({event.process, event.thread});
  last_thread_number_ = place->second;
  return last_thread_number_;
}

std::int32_t DeviceTraceBuilder::rank_list(const std::vector<std::int32_t>& ranks) {
  const auto [place, added] = rank_lists_.emplace(ranks, static_cast<std::int32_t>(trace_.rank_lists.size()));
  if (added) trace_.rank_lists.push_back(ranks);
  return place->second;
}

std::int32_t DeviceTraceBuilder::collective_of(const ParsedEvent& event) {
  const bool from_shape = event.collective.empty() && event.shape_elements >= 0 && event.name.starts_with("nccl:");
  if (event.collective.empty() && !from_shape) return kAbsent;
  CollectiveFacts facts;
  const std::string_view dtype = from_shape ? event.shape_dtype : event.dtype;
  facts.name = names_.number_of(from_shape ? std::string_view(event.name).substr(5) : event.collective);
  if (!dtype.empty()) facts.dtype = names_.number_of(dtype);
  facts.element_bytes = element_bytes(dtype);
  if (!event.group_name.empty()) facts.group_name = names_.number_of(event.group_name);
  if (!event.group_description.empty()) facts.group_description = names_.number_of(event.group_description);
  if (!event.group_ranks.empty() && !event.group_ranks_cut) facts.group_ranks = rank_list(event.group_ranks);
  facts.group_size = narrow_size(event.group_size);
  facts.in_elements = from_shape ? event.shape_elements : event.in_elements;
  facts.out_elements = event.out_elements;
  facts.sequence = event.sequence;
  const CollectiveKey key = {facts.name,        facts.dtype,      facts.group_name,  facts.group_description,
                             facts.group_ranks, facts.group_size, facts.in_elements, facts.out_elements,
                             facts.sequence};
  const auto [place, added] = collectives_.emplace(key, static_cast<std::int32_t>(trace_.collectives.size()));
  if (added) trace_.collectives.push_back(facts);
  return place->second;
}

std::int32_t DeviceTraceBuilder::stream_of(const ParsedEvent& event) {
  if (event.stream != -1) return narrow_stream(event.stream);
  ++without_stream_;
  std::int32_t stream = 0;
  std::from_chars(event.thread.data(), event.thread.data() + event.thread.size(), stream);
  return stream;
}

void DeviceTraceBuilder::add_device_activity(const ParsedEvent& event, std::vector<DeviceActivity>& list) {
  DeviceActivity activity;
  activity.start = event.start;
  activity.end = event.start + event.duration;
  activity.correlation = event.correlation;
  activity.bytes = event.bytes;
  activity.name = names_.number_of(event.name);
  activity.stream = stream_of(event);
  if (event.device >= 0) {
    activity.device = narrow_size(event.device);
  } else {
    std::from_chars(event.process.data(), event.process.data() + event.process.size(), activity.device);
  }
  activity.kind = kernel_kind(event.name);
  if (activity.kind == KernelKind::communication) activity.collective = collective_of(event);
  activity.position = static_cast<std::int32_t>(trace_.events - 1);
  list.push_back(activity);
}

void DeviceTraceBuilder::add_host_activity(const ParsedEvent& event, HostKind kind) {
  HostActivity activity;
  activity.start = event.start;
  activity.end = event.start + event.duration;
  activity.correlation = event.correlation;
  activity.external = event.external;
  activity.name = names_.number_of(event.name);
  activity.thread = thread_of(event);
  activity.kind = kind;
  if (kind == HostKind::runtime) {
    activity.call = host_call(event.name);
  } else {
    activity.collective = collective_of(event);
  }
  trace_.host.push_back(activity);
}

void DeviceTraceBuilder::add_sync(const ParsedEvent& event) {
  SyncActivity sync;
  sync.start = event.start;
  sync.end = event.start + event.duration;
  sync.correlation = event.correlation;
  sync.event = event.wait_on_event;
  sync.record_correlation = event.record_correlation;
  sync.name = names_.number_of(event.name);
  sync.device = narrow_size(event.device);
  sync.stream = narrow_stream(event.stream);
  sync.names_stream = event.stream != -1;
  sync.wait_on_stream = narrow_stream(event.wait_on_stream);
  sync.kind = sync_kind(event.name);
  sync.position = static_cast<std::int32_t>(trace_.events - 1);
  trace_.syncs.push_back(sync);
}

void DeviceTraceBuilder::add_step(const ParsedEvent& event, std::vector<StepMark>& steps) {
  StepMark step;
  const std::string_view digits = std::string_view(event.name).substr(kStepPrefix.size());
  std::from_chars(digits.data(), digits.data() + digits.size(), step.number);
  step.start = event.start;
  step.end = event.start + event.duration;
  steps.push_back(step);
}

void DeviceTraceBuilder::add(const ParsedEvent& given) {
  ++trace_.events;
  // HTA keeps all time stamps in one column, which holds floats as soon as one stamp has a fraction or is missing.
  if (given.fractional || given.start == kNoTime) trace_.fractional = true;
  if (given.phase != 'X' || given.category == EventCategory::none || given.category == EventCategory::trace) return;
  if (given.category == EventCategory::python_function) return;
  if (given.start == kNoTime || given.duration == kNoTime) {
    ++(given.start == kNoTime ? without_time_ : without_duration_);
    return;
  }
  if (given.duration < Nanos{}) {
    ++negative_;
    ParsedEvent nothing_long = given;
    nothing_long.duration = Nanos{};
    --trace_.events;
    add(nothing_long);
    return;
  }
  // By name alone: profilers before PyTorch 1.12 called steps operators.
  if (is_step(given.name) && (given.stream == -1 || given.correlation == -1)) {
    add_step(given, given.category == EventCategory::gpu_annotation ? trace_.device_steps : trace_.steps);
  }
  switch (given.category) {
    case EventCategory::kernel:
    case EventCategory::gpu_memcpy:
    case EventCategory::gpu_memset:
      return add_device_activity(given, trace_.device);
    case EventCategory::cuda_sync:
      return add_sync(given);
    case EventCategory::gpu_annotation:
      if (given.stream != -1) add_device_activity(given, trace_.stream_marks);
      return;
    case EventCategory::runtime:
      add_host_activity(given, HostKind::runtime);
      break;
    case EventCategory::cpu_op:
      add_host_activity(given, HostKind::op);
      break;
    case EventCategory::user_annotation:
      add_host_activity(given, HostKind::annotation);
      break;
    default:
      add_host_activity(given, HostKind::other);
      break;
  }
  if (given.stream != -1) add_device_activity(given, trace_.stream_marks);
}

void DeviceTraceBuilder::add_group(const std::string& name, std::vector<std::int32_t> ranks) {
  groups_[name] = std::move(ranks);
}

void DeviceTraceBuilder::add_warnings() {
  const auto warn = [&](std::string_view text) { trace_.warnings.emplace_back(text); };
  if (without_time_ > 0) warn(fmt::format("{} events have no 'ts' and are left out", without_time_));
  if (without_duration_ > 0) warn(fmt::format("{} events have no 'dur' and are left out", without_duration_));
  if (negative_ > 0) warn(fmt::format("{} events have a negative duration; they count as 0 long", negative_));
  if (without_stream_ > 0) {
    warn(fmt::format("{} device activities do not name their stream; the thread's number is taken", without_stream_));
  }
  if (trace_.device.empty()) {
    warn("no GPU kernels: the profiler was not told to record the device (ProfilerActivity.CUDA)");
    return;
  }
  std::int64_t orphans = 0;
  for (const DeviceActivity& activity : trace_.device) orphans += activity.launch == kAbsent ? 1 : 0;
  if (orphans > 0) {
    warn(fmt::format("{} of {} device activities have no launch in the trace", orphans, trace_.device.size()));
  }
  if (trace_.steps.empty()) warn("no ProfilerStep: all of the trace is taken as one stretch");
  for (std::size_t i = 1; i < trace_.steps.size(); ++i) {
    if (trace_.steps[i].start >= trace_.steps[i - 1].end) continue;
    warn(fmt::format("steps {} and {} overlap", trace_.steps[i - 1].number, trace_.steps[i].number));
    break;
  }
}

DeviceTrace DeviceTraceBuilder::finish(DeviceTrace about) {
  // Frees unused capacity, which the analysis would otherwise lack.
  trace_.device.shrink_to_fit();
  trace_.host.shrink_to_fit();
  for (CollectiveFacts& facts : trace_.collectives) {
    if (facts.group_ranks != kAbsent || facts.group_name == kAbsent) continue;
    const auto group = groups_.find(names_[facts.group_name]);
    if (group == groups_.end()) continue;
    facts.group_ranks = rank_list(group->second);
    if (facts.group_size == 0) facts.group_size = narrow_size(static_cast<std::int64_t>(group->second.size()));
  }
  trace_.names = names_.take();
  connect_launches(trace_);
  trace_.warnings = std::move(about.warnings);
  add_warnings();
  trace_.file = std::move(about.file);
  trace_.rank = about.rank;
  trace_.world_size = about.world_size;
  trace_.backend = std::move(about.backend);
  trace_.base_time_ns = about.base_time_ns;
  trace_.devices = std::move(about.devices);
  return std::move(trace_);
}

}  // namespace weft
