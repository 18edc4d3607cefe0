// The outermost object of a trace; events go to one of two builders, depending on who wrote the file.
#include "io/trace/device_trace_reader.hpp"

#include <charconv>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "io/json/json_stream.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/device_trace_builder.hpp"
#include "io/trace/trace_event.hpp"
#include "io/trace/weft_trace_builder.hpp"
#include "timeline/trace/timeline_trace.hpp"

namespace weft {
namespace {

using OpenSource = std::function<ByteSource()>;

class TraceFileReader {
 public:
  TraceFileReader(ByteSource& source) : json_(source) { about_.file = source.name(); }

  // Returns nothing where the file is a timeline, for which there is another reader.
  std::optional<std::vector<DeviceTrace>> read() {
    const char first = json_.peek();
    if (first == '\0') fail("{}: the file is empty", about_.file);
    if (first == '[') {
      // "JSON array format": nothing but events, and the bracket at the end may be missing.
      read_events(true);
    } else if (first == '{') {
      if (!read_members()) return std::nullopt;
    } else {
      json_.reject("a trace is a JSON object or a list of events, and this is neither");
    }
    json_.end();
    if (events_ == 0) fail("{}: it has no trace events", about_.file);
    if (weft_) return weft_builder_.finish(about_);
    std::vector<DeviceTrace> traces;
    traces.push_back(builder_.finish(std::move(about_)));
    return traces;
  }

 private:
  bool read_members() {
    bool any_events = false;
    json_.open('{');
    while (const auto key = json_.next_key()) {
      if (*key == "traceEvents") {
        any_events = true;
        read_events(false);
      } else if (*key == "weft_timeline") {
        return false;
      } else if (*key == "otherData" && json_.peek() == '{') {
        read_other_data();
      } else if (*key == "distributedInfo" && json_.peek() == '{') {
        read_distributed_info();
      } else if (*key == "deviceProperties" && json_.peek() == '[') {
        read_devices();
      } else if (*key == "baseTimeNanoseconds") {
        about_.base_time_ns = read_integer(0);
      } else {
        json_.skip();
      }
    }
    if (!any_events) fail("{}: it has no key 'traceEvents': it is no trace", about_.file);
    return true;
  }

  void read_events(bool may_stay_open) {
    json_.open('[');
    for (;;) {
      if (may_stay_open && json_.peek() == '\0') {
        about_.warnings.emplace_back("the list of events is not closed: the trace may be cut off");
        return;
      }
      if (!json_.next_element()) return;
      if (json_.peek() != '{') {
        json_.skip();
        continue;
      }
      read_trace_event(json_, event_);
      ++events_;
      // Our own spans say when they were issued; a file without "otherData" is told by its first one.
      if (!weft_ && event_.issued != kNoTime) weft_ = true;
      if (weft_) {
        weft_builder_.add(event_);
      } else {
        builder_.add(event_);
      }
    }
  }

  std::int64_t read_integer(std::int64_t otherwise) {
    const char c = json_.peek();
    if (c == '"') return JsonNumber{json_.string()}.scaled(0).value_or(otherwise);
    if (c == '-' || (c >= '0' && c <= '9')) return json_.number().scaled(0).value_or(otherwise);
    json_.skip();
    return otherwise;
  }
  std::int32_t read_small(std::int32_t otherwise) {
    const std::int64_t value = read_integer(otherwise);
    return value < 0 || value > std::numeric_limits<std::int32_t>::max() ? otherwise : static_cast<std::int32_t>(value);
  }
  std::string read_text() {
    const char c = json_.peek();
    if (c == '"') return std::string(json_.string());
    if (c >= '0' && c <= '9') return std::string(json_.number().text);
    json_.skip();
    return {};
  }

  void read_other_data() {
    json_.open('{');
    while (const auto key = json_.next_key()) {
      if (*key == "timeline") weft_ = true;
      // Parts that were left out would be taken for idle time.
      if (*key == "left_out") fail("{}: it leaves out a part of the step: {}", about_.file, read_text());
      if (*key == "step_us" && json_.peek() >= '0' && json_.peek() <= '9') {
        constexpr int kMicrosToNanos = 3;
        about_.step_time = Nanos{json_.number().scaled(kMicrosToNanos).value_or(0)};
      } else {
        json_.skip();
      }
    }
  }

  void read_distributed_info() {
    json_.open('{');
    while (const auto key = json_.next_key()) {
      if (*key == "rank") {
        about_.rank = Rank{read_small(-1)};
      } else if (*key == "world_size") {
        about_.world_size = read_integer(0);
      } else if (*key == "backend") {
        about_.backend = read_text();
      } else if (*key == "pg_config" && json_.peek() == '[') {
        read_groups();
      } else {
        json_.skip();
      }
    }
  }

  void read_groups() {
    json_.open('[');
    while (json_.next_element()) {
      if (json_.peek() != '{') {
        json_.skip();
        continue;
      }
      std::string name;
      std::vector<std::int32_t> ranks;
      json_.open('{');
      while (const auto key = json_.next_key()) {
        if (*key == "pg_name") {
          name = read_text();
        } else if (*key == "ranks" && json_.peek() == '[') {
          json_.open('[');
          while (json_.next_element()) ranks.push_back(read_small(-1));
        } else {
          json_.skip();
        }
      }
      if (!name.empty() && !ranks.empty()) builder_.add_group(name, std::move(ranks));
    }
  }

  void read_devices() {
    json_.open('[');
    while (json_.next_element()) {
      if (json_.peek() != '{') {
        json_.skip();
        continue;
      }
      TraceDevice device;
      json_.open('{');
      while (const auto key = json_.next_key()) {
        if (*key == "id") {
          device.id = read_small(0);
        } else if (*key == "name") {
          device.name = read_text();
        } else if (*key == "totalGlobalMem") {
          device.memory = Bytes{read_integer(0)};
        } else if (*key == "numSms") {
          device.multiprocessors = read_small(0);
        } else if (*key == "computeMajor") {
          device.compute_major = read_small(0);
        } else if (*key == "computeMinor") {
          device.compute_minor = read_small(0);
        } else {
          json_.skip();
        }
      }
      about_.devices.push_back(std::move(device));
    }
  }

  JsonStream json_;
  DeviceTrace about_;
  ParsedEvent event_;
  DeviceTraceBuilder builder_;
  WeftTraceBuilder weft_builder_;
  bool weft_ = false;
  std::int64_t events_ = 0;
};

std::string whole_text(ByteSource source) {
  std::string text;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + (std::size_t{1} << 18));
    const std::size_t count = source.read(text.data() + before, text.size() - before);
    text.resize(before + count);
    if (count == 0) return text;
    if (text.size() > kMaxTimelineFileBytes) fail("{}: a timeline of more than 512 MiB", source.name());
  }
}

// "trace_rank-3.json", "rank3.json.gz": where the trace itself says nothing, its name may.
Rank rank_in_file_name(const std::string& file) {
  const std::string name = std::filesystem::path(file).filename().string();
  const std::size_t place = name.rfind("rank");
  if (place == std::string::npos) return {};
  std::size_t digits = place + 4;
  if (digits < name.size() && (name[digits] == '-' || name[digits] == '_')) ++digits;
  std::int32_t rank = -1;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), rank);
  return error == std::errc() && rank >= 0 ? Rank{rank} : Rank{};
}

std::vector<DeviceTrace> read_traces(const OpenSource& open) {
  ByteSource source = open();
  const std::string name = source.name();
  std::optional<std::vector<DeviceTrace>> traces = TraceFileReader(source).read();
  if (!traces) traces = traces_of_timeline(read_timeline_json(whole_text(open()), name).timeline, name);
  for (DeviceTrace& trace : *traces) {
    if (!trace.rank.valid()) trace.rank = rank_in_file_name(name);
  }
  return std::move(*traces);
}

}  // namespace

std::vector<DeviceTrace> read_device_traces(const std::string& file_name, ByteSource::Progress progress) {
  return read_traces([&] { return ByteSource::of_file(file_name, progress); });
}

std::vector<DeviceTrace> device_traces_of_bytes(std::string_view bytes, const std::string& name) {
  return read_traces([&] { return ByteSource::of_bytes(bytes, name); });
}

}  // namespace weft
