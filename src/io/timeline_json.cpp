// Reads docs/timeline-format.md.
#include "io/timeline_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"
#include "io/json/json_rows.hpp"

namespace weft {
namespace {

using nlohmann::json;

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMaxTime = std::int64_t{1} << 61;  // as check_timeline has it
constexpr double kMaxPeriod = 9e15;                       // ns; the accounting's limit
constexpr JsonColumn kIteration{"iteration", -kMaxInt32, kMaxInt32};

constexpr JsonColumn time_column(const char* name) {
  return {name, -kMaxTime, kMaxTime};
}

std::int32_t narrow(std::int64_t value) {
  return static_cast<std::int32_t>(value);
}

class TimelineReader {
 public:
  TimelineReader(const json& value, const std::string& file_name)
      : value_(value), file_(value, file_name), traffic_(names_up_to(TrafficKind::other)) {}

  TimelineFile read() {
    file_.allow_only(keys_);
    if (const std::int64_t version = file_.integer("weft_timeline", 0); version != kVersion) {
      fail("{}: key 'weft_timeline': version {} of the timeline format is not {}, the only one that this weft reads",
           file_.where(), version, kVersion);
    }
    const std::array<std::string, 2> origins{"predicted", "measured"};
    t_.measured = file_.one_of("timeline", origins) == 1;
    t_.names = file_.strings("names");
    read_steady(file_.object("steady"));
    for_each("ranks", [&](const JsonObject& object) { read_rank(object); });
    knows_dependencies_ = file_.boolean_or("dependencies", true);
    operations_ = static_cast<std::int64_t>(file_.array("operations").size());
    if (operations_ > kMaxInt32) file_.reject("operations", fmt::format("an array of at most {}", kMaxInt32));
    t_.operations.reserve(operations_);
    if (knows_dependencies_) t_.dependency_begin.push_back(0);
    for_each("operations", [&](const JsonObject& object) { read_operation(object); });
    read_spans();
    if (file_.has("memory")) read_memory();
    return {std::move(t_), read_about()};
  }

 private:
  template <class Read>
  void for_each(const std::string& key, Read read) {
    const json& list = file_.array(key);
    for (std::size_t i = 0; i < list.size(); ++i) {
      read(JsonObject(list[i], fmt::format("{}: {}[{}]", file_.where(), key, i)));
    }
  }

  void read_steady(const JsonObject& object) {
    object.allow_only(steady_keys_);
    t_.steady_first = narrow(object.integer("first", kIteration.min, kIteration.max));
    t_.steady_begin = {object.integer("begin", -kMaxTime, kMaxTime)};
    t_.period_ns = object.number("period", 0, kMaxPeriod);
    t_.periods = narrow(object.integer("periods", 1, kMaxInt32));
  }

  void read_rank(const JsonObject& object) {
    object.allow_only(rank_keys_);
    TimelineRank rank;
    rank.name = object.string("name");
    rank.rank = {narrow(object.integer("rank", 0, kMaxInt32))};
    rank.ranks = object.integer_or("ranks", 1, 1, kMaxInt32);
    for (std::string& queue : object.strings("queues")) rank.queues.push_back(std::move(queue));
    t_.ranks.push_back(std::move(rank));
  }

  // A timeline may come without names (sim's SimOptions): all are then 0.
  std::int32_t name(const JsonObject& object, const char* key) const {
    const auto last = std::max<std::int64_t>(0, static_cast<std::int64_t>(t_.names.size()) - 1);
    return narrow(object.integer(key, 0, last));
  }

  void read_operation(const JsonObject& object) {
    object.allow_only(operation_keys_);
    TimelineOperation op;
    op.name = name(object, "name");
    op.phase = name(object, "phase");
    op.rank = narrow(object.integer("rank", 0, static_cast<std::int64_t>(t_.ranks.size()) - 1));
    const std::size_t queues = t_.ranks[op.rank].queues.size();
    op.queue = {narrow(object.integer("queue", 0, static_cast<std::int64_t>(queues) - 1))};
    op.micro_batch = {narrow(object.integer_or("micro_batch", -1, -1, kMaxInt32))};
    op.alone = {object.integer("alone", 0, kMaxTime)};
    if (object.has("traffic")) {
      read_transfer(object, op);
    } else {
      for (const char* key : {"collective", "bytes", "group", "group_size", "transfer", "receives"}) {
        if (object.has(key)) fail("{}: key '{}' is for transfers, which have a key 'traffic'", object.where(), key);
      }
    }
    t_.operations.push_back(op);
    read_waits(object);
  }
  void read_transfer(const JsonObject& object, TimelineOperation& op) const {
    op.activity = Activity::transfer;
    op.traffic = static_cast<TrafficKind>(object.one_of("traffic", traffic_));
    op.bytes = {object.integer("bytes", 0, kMaxTime)};
    if (object.has("collective")) op.collective = name(object, "collective");
    if (object.has("group")) op.group = name(object, "group");
    op.group_size = narrow(object.integer_or("group_size", 0, 0, kMaxInt32));
    op.transfer = narrow(object.integer_or("transfer", -1, -1, kMaxInt32));
    op.receives = object.boolean_or("receives", false);
  }
  void read_waits(const JsonObject& object) {
    if (!knows_dependencies_) {
      if (object.has("waits")) fail("{}: key 'waits' where key 'dependencies' is false", object.where());
      return;
    }
    const auto rows =
        json_rows<3>(object, "waits", {{{"operation", 0, operations_ - 1}, {"distance", 0, 1}, {"order", 0, 2}}});
    for (const auto& [operation, distance, order] : rows) {
      t_.dependencies.push_back({narrow(operation), static_cast<std::int16_t>(distance), order == 1, order == 2});
    }
    if (std::ssize(t_.dependencies) > kMaxInt32) {
      fail("{}: with it there are more than {} waits", object.where(), kMaxInt32);
    }
    t_.dependency_begin.push_back(narrow(std::ssize(t_.dependencies)));
  }

  void read_spans() {
    file_.array("spans");  // json_rows takes an absent one for empty
    const auto rows = json_rows<6>(file_, "spans",
                                   {{{"operation", 0, operations_ - 1},
                                     kIteration,
                                     time_column("issued"),
                                     time_column("ready"),
                                     time_column("start"),
                                     time_column("end")}});
    t_.spans.reserve(rows.size());
    for (const auto& [operation, iteration, issued, ready, start, end] : rows) {
      t_.spans.push_back({narrow(operation), narrow(iteration), {issued}, {ready}, {start}, {end}});
    }
  }

  void read_memory() {
    const json& list = file_.array("memory");
    for (std::size_t i = 0; i < list.size(); ++i) {
      // Wraps the rows in an object with one key, so that mistakes are named by their row.
      const json samples{{"samples", list[i]}};
      const JsonObject object(samples, fmt::format("{}: memory[{}]", file_.where(), i));
      object.array("samples");
      auto& curve = t_.memory.emplace_back();
      for (const auto& [at, bytes] : json_rows<2>(object, "samples", {time_column("time"), {"bytes", 0, kMaxTime}})) {
        if (!curve.empty() && Nanos{at} < curve.back().at) {
          fail("{}: key 'samples'[{}]: time {} is not ascending", object.where(), curve.size(), at);
        }
        curve.push_back({{at}, {bytes}});
      }
    }
  }

  std::map<std::string, std::string> read_about() const {
    std::map<std::string, std::string> about;
    if (!file_.has("about")) return about;
    const JsonObject object = file_.object("about");
    for (const auto& [key, word] : value_.at("about").items()) about[key] = object.string(key);
    return about;
  }

  const std::vector<std::string> keys_{"weft_timeline", "timeline", "about",      "steady", "dependencies",
                                       "names",         "ranks",    "operations", "spans",  "memory"};
  const std::vector<std::string> steady_keys_{"first", "begin", "period", "periods"};
  const std::vector<std::string> rank_keys_{"name", "rank", "ranks", "queues"};
  const std::vector<std::string> operation_keys_{"name",       "phase",    "rank",       "queue", "micro_batch",
                                                 "alone",      "traffic",  "collective", "bytes", "group",
                                                 "group_size", "transfer", "receives",   "waits"};
  const json& value_;
  JsonObject file_;
  std::vector<std::string> traffic_;
  Timeline t_;
  std::int64_t operations_ = 0;
  bool knows_dependencies_ = true;
};

}  // namespace

TimelineFile read_timeline_json(const std::string& text, const std::string& file_name) {
  if (text.size() > kMaxTimelineFileBytes) {
    fail("{}: {} bytes are more than the {} that a timeline file may have", file_name, text.size(),
         kMaxTimelineFileBytes);
  }
  const json value = parse_json(text, file_name);
  TimelineFile file = TimelineReader(value, file_name).read();
  try {
    check_timeline(file.timeline);
  } catch (const Error& error) {
    fail("{}: {}", file_name, error.what());
  }
  return file;
}

}  // namespace weft
