// Keys are compared by length first: an event has some thirty, of which ten matter.
#include "io/trace/trace_event.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

namespace weft {
namespace {

constexpr int kMicrosToNanos = 3;  // decimal places

EventCategory category_of(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, EventCategory>, 19> kNames = {{
      {"cpu_op", EventCategory::cpu_op},
      {"kernel", EventCategory::kernel},
      {"cuda_runtime", EventCategory::runtime},
      {"python_function", EventCategory::python_function},
      {"gpu_memcpy", EventCategory::gpu_memcpy},
      {"gpu_memset", EventCategory::gpu_memset},
      {"user_annotation", EventCategory::user_annotation},
      {"gpu_user_annotation", EventCategory::gpu_annotation},
      {"cuda_sync", EventCategory::cuda_sync},
      {"cuda_driver", EventCategory::runtime},
      {"hip_runtime", EventCategory::runtime},
      {"privateuse1_runtime", EventCategory::runtime},
      {"xpu_runtime", EventCategory::runtime},
      {"Trace", EventCategory::trace},
      // Until PyTorch 1.11.
      {"Kernel", EventCategory::kernel},
      {"Memcpy", EventCategory::gpu_memcpy},
      {"Memset", EventCategory::gpu_memset},
      {"Runtime", EventCategory::runtime},
      {"Operator", EventCategory::cpu_op},
  }};
  for (const auto& [name, category] : kNames) {
    if (text == name) return category;
  }
  return EventCategory::other;
}

bool starts_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == 'N' || c == 'I' || c == 'i';
}

// A number, or a number in quotes; what is neither leaves -1.
std::int64_t read_integer(JsonStream& json) {
  const char c = json.peek();
  if (c == '"') return JsonNumber{json.string()}.scaled(0).value_or(-1);
  if (starts_number(c)) return json.number().scaled(0).value_or(-1);
  json.skip();
  return -1;
}

void read_text(JsonStream& json, std::string& into) {
  const char c = json.peek();
  if (c == '"') {
    into.assign(json.string());
  } else if (starts_number(c)) {
    into.assign(json.number().text);
  } else {
    json.skip();
  }
}

// Longer durations are damage, and their sums would not fit.
constexpr std::int64_t kMaxDuration = std::int64_t{1} << 53;  // ns: 104 days

Nanos read_micros(JsonStream& json, const char* key, bool* fractional) {
  const char c = json.peek();
  JsonNumber number;
  if (c == '"') {
    number.text = json.string();  // some tools write times in quotes
  } else if (starts_number(c)) {
    number = json.number();
  } else {
    json.reject(fmt::format("'{}' is no number", key));
  }
  if (fractional != nullptr) *fractional = number.has_fraction();
  const auto nanos = number.scaled(kMicrosToNanos);
  if (!nanos)
    json.reject(fmt::format("'{}' is '{}', which is no time within 73 years", key, number.text.substr(0, 40)));
  return {*nanos};
}

// "[0, 1, 2]" in a string, as PyTorch writes it, or a list.
void add_ranks(std::string_view text, ParsedEvent& event) {
  while (!text.empty()) {
    const std::size_t digit = text.find_first_of("0123456789.");
    if (digit == std::string_view::npos) return;
    text.remove_prefix(digit);
    if (text.front() == '.') {
      event.group_ranks_cut = true;
      text.remove_prefix(1);
      continue;
    }
    std::int32_t rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc()) return;
    event.group_ranks.push_back(rank);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
}

void read_ranks(JsonStream& json, ParsedEvent& event) {
  event.group_ranks.clear();
  event.group_ranks_cut = false;
  const char c = json.peek();
  if (c == '"') {
    add_ranks(json.string(), event);
  } else if (c == '[') {
    json.open('[');
    while (json.next_element()) {
      const std::int64_t rank = read_integer(json);
      if (rank >= 0 && rank <= std::numeric_limits<std::int32_t>::max()) {
        event.group_ranks.push_back(static_cast<std::int32_t>(rank));
      }
    }
  } else {
    json.skip();
  }
}

// Elements of a shape like [8, 1024]; of a list of shapes, their sum. A list without any number counts 0.
std::int64_t read_elements(JsonStream& json, int depth) {
  if (json.peek() != '[' || depth > 3) {
    json.skip();
    return 0;
  }
  constexpr std::int64_t kMaxValue = std::int64_t{1} << 56;
  std::int64_t sum = 0, product = 1;
  bool any = false;
  json.open('[');
  while (json.next_element()) {
    if (starts_number(json.peek())) {
      const std::int64_t size = std::max<std::int64_t>(0, json.number().scaled(0).value_or(0));
      product = size == 0 || product <= kMaxValue / size ? product * size : kMaxValue;
      any = true;
    } else {
      sum = std::min(kMaxValue, sum + read_elements(json, depth + 1));
    }
  }
  return sum + (any ? product : 0);
}

void read_first_text(JsonStream& json, std::string& into) {
  if (json.peek() != '[') {
    json.skip();
    return;
  }
  json.open('[');
  while (json.next_element()) {
    if (into.empty() && json.peek() == '"') {
      into.assign(json.string());
    } else {
      json.skip();
    }
  }
}

bool read_into(JsonStream& json, std::int64_t& into) {
  into = read_integer(json);
  return true;
}

bool read_into(JsonStream& json, std::string& into) {
  read_text(json, into);
  return true;
}

// Reads an argument whose key has at most ten characters. Returns false, and reads nothing, where it is not used.
bool read_short_argument(JsonStream& json, ParsedEvent& event, std::string_view key) {
  // Shapes are slow to read, so they are read only where they may give the size of a message.
  const bool wants_shape = event.name.empty() || event.name.starts_with("nccl:");
  switch (key.size()) {
    case 3:
      if (key == "Seq") return read_into(json, event.sequence);
      break;
    case 4:
      if (key == "name") return read_into(json, event.label);
      break;
    case 5:
      if (key == "bytes") return read_into(json, event.bytes);
      if (key == "dtype") return read_into(json, event.dtype);
      if (key == "group") return read_into(json, event.group);
      break;
    case 6:
      if (key == "stream") return read_into(json, event.stream);
      if (key == "device") return read_into(json, event.device);
      break;
    case 8:
      if (key == "transfer") return read_into(json, event.transfer);
      if (key == "ready_us") {
        event.ready = read_micros(json, "ready_us", nullptr);
        return true;
      }
      break;
    case 9:
      if (key == "iteration") return read_into(json, event.iteration);
      if (key == "issued_us") {
        event.issued = read_micros(json, "issued_us", nullptr);
        return true;
      }
      break;
    case 10:
      if (key == "Group size") return read_into(json, event.group_size);
      if (key == "Input Dims" && wants_shape) {
        event.shape_elements = read_elements(json, 0);
        return true;
      }
      if (key == "Input type" && wants_shape) {
        read_first_text(json, event.shape_dtype);
        return true;
      }
      break;
    default:
      break;
  }
  return false;
}

bool read_argument(JsonStream& json, ParsedEvent& event, std::string_view key) {
  switch (key.size()) {
    case 11:
      if (key == "correlation") return read_into(json, event.correlation);
      if (key == "External id" || key == "external id") return read_into(json, event.external);
      break;
    case 13:
      if (key == "In msg nelems") return read_into(json, event.in_elements);
      break;
    case 14:
      if (key == "Out msg nelems") return read_into(json, event.out_elements);
      if (key == "wait_on_stream") return read_into(json, event.wait_on_stream);
      break;
    case 15:
      if (key == "Collective name") return read_into(json, event.collective);
      break;
    case 18:
      if (key == "Process Group Name") return read_into(json, event.group_name);
      break;
    case 19:
      if (key == "Process Group Ranks") {
        read_ranks(json, event);
        return true;
      }
      break;
    case 21:
      if (key == "wait_on_cuda_event_id") return read_into(json, event.wait_on_event);
      break;
    case 25:
      if (key == "Process Group Description") return read_into(json, event.group_description);
      break;
    case 33:
      if (key == "wait_on_cuda_event_record_corr_id") return read_into(json, event.record_correlation);
      break;
    default:
      return read_short_argument(json, event, key);
  }
  return false;
}

void read_arguments(JsonStream& json, ParsedEvent& event) {
  if (json.peek() != '{') {
    json.skip();
    return;
  }
  json.open('{');
  while (const auto key = json.next_key()) {
    if (!read_argument(json, event, *key)) json.skip();
  }
}

bool read_member(JsonStream& json, ParsedEvent& event, std::string_view key) {
  if (key == "ph") {
    if (json.peek() != '"') return false;
    const std::string_view phase = json.string();
    event.phase = phase.empty() ? '\0' : phase.front();
  } else if (key == "cat") {
    read_text(json, event.category_text);
    event.category = category_of(event.category_text);
  } else if (key == "name") {
    read_text(json, event.name);
  } else if (key == "pid") {
    read_text(json, event.process);
  } else if (key == "tid") {
    read_text(json, event.thread);
  } else if (key == "ts") {
    event.start = read_micros(json, "ts", &event.fractional);
  } else if (key == "dur") {
    event.duration = read_micros(json, "dur", nullptr);
    if (event.duration.value > kMaxDuration) json.reject("'dur' is longer than 104 days");
  } else if (key == "args") {
    read_arguments(json, event);
  } else if (key == "id") {
    event.flow = read_integer(json);
  } else {
    return false;
  }
  return true;
}

}  // namespace

void ParsedEvent::clear() {
  for (std::string* text : {&category_text, &name, &process, &thread, &collective, &dtype, &group_name,
                            &group_description, &label, &shape_dtype, &group}) {
    text->clear();
  }
  for (std::int64_t* number :
       {&flow, &stream, &device, &correlation, &external, &bytes, &wait_on_stream, &wait_on_event, &record_correlation,
        &in_elements, &out_elements, &group_size, &sequence, &shape_elements, &iteration, &transfer}) {
    *number = -1;
  }
  start = duration = issued = ready = kNoTime;
  phase = '\0';
  category = EventCategory::none;
  fractional = group_ranks_cut = false;
  group_ranks.clear();
}

void read_trace_event(JsonStream& json, ParsedEvent& event) {
  event.clear();
  json.open('{');
  while (const auto key = json.next_key()) {
    if (!read_member(json, event, *key)) json.skip();
  }
}

}  // namespace weft
