// Reader and writer of profiles.
#include "io/profile_json.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "cost/framework.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"
#include "io/profile_operations_json.hpp"

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kVersion = 1;
constexpr double kMaxMicroseconds = 1e9;
constexpr std::int64_t kMaxMembers = 1'000'000'000;

struct ShareField {
  const char* key;
  double DeviceProfile::* field;
};
constexpr std::array kShares{ShareField{"matrix_efficiency", &DeviceProfile::matrix_efficiency},
                             ShareField{"fp8_efficiency", &DeviceProfile::fp8_efficiency},
                             ShareField{"fp4_efficiency", &DeviceProfile::fp4_efficiency},
                             ShareField{"batched_efficiency", &DeviceProfile::batched_efficiency},
                             ShareField{"attention_efficiency", &DeviceProfile::attention_efficiency},
                             ShareField{"memory_efficiency", &DeviceProfile::memory_efficiency}};

struct Time {
  const char* key;
  Nanos DeviceProfile::* field;
};
constexpr std::array kTimes{Time{"kernel_gap_us", &DeviceProfile::kernel_gap},
                            Time{"launch_us", &DeviceProfile::launch},
                            Time{"transfer_launch_us", &DeviceProfile::transfer_launch},
                            Time{"resync_us", &DeviceProfile::resync},
                            Time{"operation_overhead_us", &DeviceProfile::operation_overhead},
                            Time{"handoff_us", &DeviceProfile::handoff},
                            Time{"wake_us", &DeviceProfile::wake},
                            Time{"message_overhead_us", &DeviceProfile::message_overhead}};

struct Slowdown {
  const char* key;
  std::optional<double> DeviceProfile::* field;
};
constexpr std::array kSlowdowns{Slowdown{"compute_slowdown", &DeviceProfile::compute_slowdown},
                                Slowdown{"transfer_slowdown", &DeviceProfile::transfer_slowdown},
                                Slowdown{"further_slowdown", &DeviceProfile::further_slowdown},
                                Slowdown{"waiting_slowdown", &DeviceProfile::waiting_slowdown},
                                Slowdown{"copy_slowdown", &DeviceProfile::copy_slowdown}};
constexpr double kMaxSlowdown = 100;  // as in a cluster file
constexpr double kMaxBandwidth = 1e15;

using PointsByMembers = std::map<std::int64_t, std::vector<MeasuredEfficiency>>;

ordered_json points_to_json(const PointsByMembers& measured) {
  ordered_json result = ordered_json::array();
  for (const auto& [members, points] : measured) {
    ordered_json bytes = ordered_json::array(), reached = ordered_json::array();
    for (const MeasuredEfficiency& point : points) {
      bytes.push_back(point.bytes.value);
      reached.push_back(point.efficiency);
    }
    result.push_back({{"members", members}, {"bytes", bytes}, {"efficiency", reached}});
  }
  return result;
}

// Tables of whole collectives, by kind and by how many domains of the level below they join.
ordered_json collectives_to_json(const std::map<Collective, PointsByMembers>& collectives) {
  ordered_json result = ordered_json::array();
  for (const auto& [collective, tables] : collectives) {
    for (ordered_json& table : points_to_json(tables)) {
      table.erase("members");
      ordered_json entry{{"collective", name_of(collective)}, {"joined", 0}};
      entry.update(table);
      result.push_back(std::move(entry));
    }
    std::size_t at = result.size() - tables.size();
    for (const auto& [joined, points] : tables) result[at++]["joined"] = joined;
  }
  return result;
}

ordered_json links_to_json(const std::map<std::string, LinkProfile, std::less<>>& links) {
  ordered_json result = ordered_json::object();
  for (const auto& [level, link] : links) {
    ordered_json entry{{"efficiency", link.efficiency}};
    if (!link.measured.empty()) entry["measured"] = points_to_json(link.measured);
    if (!link.all_to_all.empty()) entry["all_to_all"] = points_to_json(link.all_to_all);
    if (!link.collectives.empty()) entry["collectives"] = collectives_to_json(link.collectives);
    result[level] = entry;
  }
  return result;
}

// A share of a peak. Below a thousandth it is no measurement, and times would exceed the simulator's clock.
constexpr double kMinShare = 0.001;
double share(const JsonObject& object, const std::string& key, double fallback) {
  return object.number_or(key, fallback, kMinShare, 1);
}

// Small messages reach little of a link, so what was measured by size may be less than a share of large ones.
constexpr double kMinMeasured = 1e-6;
// Above 1: bus bandwidth counts the bytes of a ring, and switches and trees move fewer (cost/measured_links.cpp).
constexpr double kMostOfCollectives = 2;

std::vector<MeasuredEfficiency> read_points(const JsonObject& object, double most = 1) {
  const std::vector<std::int64_t> bytes = object.integers("bytes", 1);
  const std::vector<double> reached = object.numbers("efficiency", kMinMeasured, most);
  if (bytes.size() != reached.size() || bytes.empty()) {
    fail("{}: 'bytes' has {} entries and 'efficiency' {}; both need the same number, at least one", object.where(),
         bytes.size(), reached.size());
  }
  std::vector<MeasuredEfficiency> points;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0 && bytes[i] <= bytes[i - 1]) object.reject("bytes", "a list in ascending order");
    points.push_back({Bytes{bytes[i]}, reached[i]});
  }
  return points;
}

PointsByMembers read_by_members(const JsonObject& object, const std::string& key) {
  PointsByMembers result;
  for (const JsonObject& entry : object.objects(key)) {
    entry.allow_only(std::array<std::string, 3>{"members", "bytes", "efficiency"});
    result[entry.integer("members", 2, kMaxMembers)] = read_points(entry);
  }
  return result;
}

std::map<Collective, PointsByMembers> read_collectives(const JsonObject& object, const std::string& key) {
  std::map<Collective, PointsByMembers> result;
  for (const JsonObject& entry : object.objects(key)) {
    entry.allow_only(std::array<std::string, 4>{"collective", "joined", "bytes", "efficiency"});
    const auto collective = static_cast<Collective>(entry.one_of("collective", names_up_to(Collective::barrier)));
    result[collective][entry.integer("joined", 1, kMaxMembers)] = read_points(entry, kMostOfCollectives);
  }
  return result;
}

LinkProfile read_link(const JsonObject& object, LinkProfile link) {
  object.allow_only(std::array<std::string, 5>{"efficiency", "measured", "all_to_all", "collectives", "origin"});
  // One figure for everything replaces tables that the base may have.
  if (object.has("efficiency")) {
    link.measured.clear();
    link.all_to_all.clear();
    link.collectives.clear();
  }
  link.efficiency = share(object, "efficiency", link.efficiency);
  if (object.has("measured")) link.measured = read_by_members(object, "measured");
  if (object.has("all_to_all")) link.all_to_all = read_by_members(object, "all_to_all");
  if (object.has("collectives")) link.collectives = read_collectives(object, "collectives");
  return link;
}

void read_links(const json& value, const std::string& where, std::map<std::string, LinkProfile, std::less<>>& links) {
  for (const auto& [level, entry] : value.items()) {
    const std::string place = fmt::format("{}: links.{}", where, level);
    links[level] = read_link(JsonObject(entry, place), links[level]);
  }
}

DeviceProfile read_device(const json& value, const std::string& where, DeviceProfile device) {
  const JsonObject object(value, where);
  std::vector<std::string> known{"tile_startup", "tiled", "links", "operations", "reduce_bytes_per_s", "origin"};
  for (const ShareField& field : kShares) known.emplace_back(field.key);
  for (const Time& field : kTimes) known.emplace_back(field.key);
  for (const Slowdown& field : kSlowdowns) known.emplace_back(field.key);
  object.allow_only(known);
  for (const ShareField& field : kShares) device.*field.field = share(object, field.key, device.*field.field);
  for (const Time& field : kTimes) {
    const double us = object.number_or(field.key, seconds(device.*field.field) * 1e6, 0, kMaxMicroseconds);
    device.*field.field = nanos_from_seconds(us * 1e-6);
  }
  for (const Slowdown& field : kSlowdowns) {
    if (object.has(field.key)) device.*field.field = object.number(field.key, 0, kMaxSlowdown);
  }
  device.reduce = {object.number_or("reduce_bytes_per_s", device.reduce.bytes_per_second, 0, kMaxBandwidth)};
  device.tile_startup = object.integer_or("tile_startup", device.tile_startup, 0, 1'000'000);
  device.tiled = object.boolean_or("tiled", device.tiled);
  if (object.has("links")) read_links(value.at("links"), object.object("links").where(), device.links);
  if (object.has("operations")) device.operations = read_measured_operations(object, "operations");
  return device;
}

ordered_json machine_to_json(const MachineFacts& machine) {
  ordered_json result{{"cpu", machine.cpu}, {"cores", machine.cores}};
  if (machine.ranks > 0) result["ranks"] = machine.ranks;
  if (machine.threads_per_rank > 0) result["threads_per_rank"] = machine.threads_per_rank;
  if (!machine.transport.empty()) result["transport"] = machine.transport;
  return result;
}

MachineFacts read_machine(const JsonObject& object) {
  object.allow_only(std::array<std::string, 5>{"cpu", "cores", "ranks", "threads_per_rank", "transport"});
  MachineFacts machine;
  machine.cpu = object.string("cpu");
  machine.cores = object.integer("cores", 0, kMaxMembers);
  machine.ranks = object.integer_or("ranks", 0, 0, kMaxMembers);
  machine.threads_per_rank = object.integer_or("threads_per_rank", 0, 0, kMaxMembers);
  machine.transport = object.string_or("transport", "");
  return machine;
}

ordered_json library_to_json(const LibraryProfile& library) {
  ordered_json result = ordered_json::array();
  for (const auto& [group, points] : library.measured) {
    ordered_json bytes = ordered_json::array(), times = ordered_json::array(), after_pause = ordered_json::array();
    for (const LibraryProfile::Point& point : points) {
      bytes.push_back(point.bytes.value);
      times.push_back(static_cast<double>(point.time.value) / 1e9);
      if (point.after_pause > Nanos{0}) after_pause.push_back(static_cast<double>(point.after_pause.value) / 1e9);
    }
    ordered_json& entry = result.emplace_back();
    entry = {
        {"collective", name_of(group.collective)}, {"members", group.members}, {"bytes", bytes}, {"seconds", times}};
    if (after_pause.size() == points.size()) entry["seconds_after_pause"] = after_pause;
  }
  return result;
}

struct FrameworkTime {
  const char* key;
  Nanos& (*field)(Framework& framework);
};
constexpr std::array kFrameworkTimes{
    FrameworkTime{"step_us", [](Framework& f) -> Nanos& { return f.optimizer.fixed; }},
    FrameworkTime{"tensor_parallel_message_us", [](Framework& f) -> Nanos& { return f.tensor_parallel_message; }},
    FrameworkTime{"check_per_member_us", [](Framework& f) -> Nanos& { return f.check_per_member; }},
    FrameworkTime{"list_copy_us", [](Framework& f) -> Nanos& { return f.lists.copy; }}};

ordered_json framework_to_json(Framework framework) {
  ordered_json result{{"name", framework.name}};
  for (const FrameworkTime& time : kFrameworkTimes) {
    result[time.key] = static_cast<double>(time.field(framework).value) / 1e3;
  }
  return result;
}

// Other times for the framework that --framework names.
std::shared_ptr<const Framework> read_framework(const JsonObject& object, const Framework* base) {
  std::vector<std::string> known{"name"};
  for (const FrameworkTime& time : kFrameworkTimes) known.emplace_back(time.key);
  object.allow_only(known);
  const std::string name = object.string("name");
  if (base == nullptr) fail("{}: its times are of framework '{}'; give --framework {}", object.where(), name, name);
  if (base->name != name) fail("{}: its times are of framework '{}', not of '{}'", object.where(), name, base->name);
  Framework framework = *base;
  for (const FrameworkTime& time : kFrameworkTimes) {
    Nanos& field = time.field(framework);
    field = nanos_from_seconds(object.number_or(time.key, seconds(field) * 1e6, 0, kMaxMicroseconds) * 1e-6);
  }
  return std::make_shared<const Framework>(framework);
}

constexpr double kMaxAtOnce = 64;
constexpr std::int64_t kMaxThreadBlocks = 64;

LibraryProfile read_library(const JsonObject& object, const std::string& key) {
  constexpr double kMaxSeconds = 1e5;
  LibraryProfile library;
  for (const JsonObject& entry : object.objects(key)) {
    entry.allow_only(std::array<std::string, 5>{"collective", "members", "bytes", "seconds", "seconds_after_pause"});
    const auto collective = static_cast<Collective>(entry.one_of("collective", names_up_to(Collective::barrier)));
    const std::int64_t members = entry.integer("members", 2, kMaxMembers);
    const std::vector<std::int64_t> bytes = entry.integers("bytes", 1);
    const std::vector<double> times = entry.numbers("seconds", 0, kMaxSeconds);
    if (bytes.size() != times.size() || bytes.empty()) {
      fail("{}: 'bytes' has {} entries and 'seconds' {}; both need the same number, at least one", entry.where(),
           bytes.size(), times.size());
    }
    std::vector<double> after_pause(bytes.size(), 0.0);
    if (entry.has("seconds_after_pause")) after_pause = entry.numbers("seconds_after_pause", 0, kMaxSeconds);
    if (after_pause.size() != bytes.size()) {
      fail("{}: 'bytes' has {} entries and 'seconds_after_pause' {}; both need the same number", entry.where(),
           bytes.size(), after_pause.size());
    }
    std::vector<LibraryProfile::Point> points;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (i > 0 && bytes[i] <= bytes[i - 1]) entry.reject("bytes", "a list in ascending order");
      points.push_back({Bytes{bytes[i]}, nanos_from_seconds(times[i]), nanos_from_seconds(after_pause[i])});
    }
    if (!library.measured.emplace(LibraryProfile::Group{collective, members}, std::move(points)).second) {
      fail("{}: {} of {} members is listed twice, once is allowed", entry.where(), name_of(collective), members);
    }
  }
  return library;
}

ExpertLoad read_expert_load(const JsonObject& object) {
  object.allow_only(std::array<std::string, 3>{"computed", "exchanged", "filled"});
  constexpr double kMaxLoad = 1e6;
  return {.computed = object.number("computed", 0, kMaxLoad),
          .exchanged = object.number("exchanged", 0, kMaxLoad),
          .filled = object.number("filled", 1e-6, 1)};
}

}  // namespace

ordered_json profile_to_json(const Profile& profile) {
  ordered_json devices = ordered_json::object();
  for (const auto& [name, device] : profile.devices) {
    ordered_json entry;
    for (const ShareField& field : kShares) entry[field.key] = device.*field.field;
    entry["tile_startup"] = device.tile_startup;
    entry["tiled"] = device.tiled;
    for (const Time& field : kTimes) entry[field.key] = static_cast<double>((device.*field.field).value) / 1e3;
    for (const Slowdown& field : kSlowdowns) {
      if (device.*field.field) entry[field.key] = *(device.*field.field);
    }
    if (device.reduce.bytes_per_second > 0) entry["reduce_bytes_per_s"] = device.reduce.bytes_per_second;
    if (!device.links.empty()) entry["links"] = links_to_json(device.links);
    if (!device.operations.empty()) entry["operations"] = measured_operations_to_json(device.operations);
    devices[name] = entry;
  }
  ordered_json result{{"weft_profile", kVersion}};
  if (profile.machine) result["machine"] = machine_to_json(*profile.machine);
  if (profile.expert_load) {
    result["expert_load"] = {{"computed", profile.expert_load->computed},
                             {"exchanged", profile.expert_load->exchanged},
                             {"filled", profile.expert_load->filled}};
  }
  if (!profile.library.measured.empty()) result["library"] = library_to_json(profile.library);
  if (profile.library.at_once != 1) result["library_at_once"] = profile.library.at_once;
  if (profile.library.thread_blocks > 0) result["library_thread_blocks"] = profile.library.thread_blocks;
  if (profile.framework) result["framework"] = framework_to_json(*profile.framework);
  result["devices"] = devices;
  result["links"] = links_to_json(profile.links);
  return result;
}

Profile read_profile(const std::string& text, const std::string& file_name, Profile base) {
  return profile_from_json(parse_json(text, file_name), file_name, std::move(base));
}

Profile profile_from_json(const json& value, const std::string& file_name, Profile base) {
  if (!value.is_object()) fail("{}: a profile is a JSON object", file_name);
  const JsonObject object(value, file_name);
  object.allow_only(std::array<std::string, 10>{"weft_profile", "machine", "expert_load", "library", "library_at_once",
                                                "library_thread_blocks", "framework", "devices", "links", "origin"});
  object.integer("weft_profile", kVersion, kVersion);
  if (object.has("machine")) base.machine = read_machine(object.object("machine"));
  if (object.has("library")) base.library = read_library(object, "library");
  base.library.at_once = object.number_or("library_at_once", base.library.at_once, 1, kMaxAtOnce);
  base.library.thread_blocks = static_cast<std::int32_t>(
      object.integer_or("library_thread_blocks", base.library.thread_blocks, 0, kMaxThreadBlocks));
  if (object.has("framework")) base.framework = read_framework(object.object("framework"), base.framework.get());
  if (object.has("expert_load")) base.expert_load = read_expert_load(object.object("expert_load"));
  if (object.has("links")) {
    object.object("links");
    read_links(value.at("links"), file_name, base.links);
    // A level in the user's file applies to every device that the file does not list separately.
    for (auto& [name, device] : base.devices) {
      for (const auto& [level, entry] : value.at("links").items()) device.links.erase(level);
    }
  }
  if (object.has("devices")) {
    object.object("devices");
    for (const auto& [name, entry] : value.at("devices").items()) {
      const std::string where = fmt::format("{}: devices.{}", file_name, name);
      base.devices[name] = read_device(entry, where, base.device(name));
    }
  }
  return base;
}

}  // namespace weft
