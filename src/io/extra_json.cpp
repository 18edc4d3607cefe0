#include "io/extra_json.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/enum_names.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::int64_t kExtraVersion = 1;
constexpr std::size_t kMostTasks = 10'000;
constexpr std::int64_t kMostStages = 1'000'000;
constexpr double kLongestTask = 1e6;  // seconds
const std::array<std::string, 2> kEvery{"step", "micro_batch"}, kDeadlineStep{"same", "next"};

ordered_json task_to_json(const ExtraTask& task) {
  ordered_json json{{"name", task.name}, {"stage", task.stage}};
  if (task.norm_of.empty()) {
    json["seconds"] = seconds(task.duration);
  } else {
    json["norm_of"] = task.norm_of;
  }
  json["every"] = kEvery[task.per_micro_batch ? 1 : 0];
  if (!task.release.empty()) json["release"] = task.release;
  if (!task.deadline.empty()) {
    json["deadline"] = task.deadline;
    json["deadline_step"] = kDeadlineStep[static_cast<std::size_t>(task.deadline_steps)];
  }
  return json;
}

ExtraTask read_task(const JsonObject& object) {
  object.allow_only(std::array<std::string, 8>{"name", "stage", "seconds", "norm_of", "every", "release", "deadline",
                                               "deadline_step"});
  ExtraTask task;
  task.name = object.string("name");
  if (task.name.empty()) object.reject("name", "a text that is not empty");
  task.stage = static_cast<std::int32_t>(object.integer_or("stage", 0, 0, kMostStages));
  if (object.has("seconds") == object.has("norm_of")) {
    fail("{}: needs either a key 'seconds', how long the task takes, or 'norm_of', the weights whose norm it computes",
         object.where());
  }
  if (object.has("seconds")) task.duration = nanos_from_seconds(object.number("seconds", 1e-9, kLongestTask));
  task.norm_of = object.string_or("norm_of", "");
  task.per_micro_batch = object.has("every") && object.one_of("every", kEvery) == 1;
  task.release = object.string_or("release", "");
  task.deadline = object.string_or("deadline", "");
  if (object.has("deadline_step")) {
    if (task.deadline.empty()) object.reject("deadline_step", "allowed without a key 'deadline'");
    task.deadline_steps = static_cast<std::int32_t>(object.one_of("deadline_step", kDeadlineStep));
  }
  return task;
}

}  // namespace

ordered_json extra_to_json(const Layout& layout) {
  ordered_json json = ordered_json::object();
  if (!layout.tasks.empty()) {
    json["tasks"] = ordered_json::array();
    for (const ExtraTask& task : layout.tasks) json["tasks"].push_back(task_to_json(task));
  }
  if (!layout.may_wait.empty()) {
    json["may_wait"] = ordered_json::array();
    for (const WorkThatWaits work : layout.may_wait) json["may_wait"].push_back(name_of(work));
  }
  return json;
}

void read_extra(const JsonObject& object, Layout& layout) {
  if (object.has("tasks")) {
    for (const JsonObject& task : object.objects("tasks")) {
      layout.tasks.push_back(read_task(task));
      const auto same = [&](const ExtraTask& other) { return other.name == layout.tasks.back().name; };
      if (std::ranges::count_if(layout.tasks, same) > 1) task.reject("name", "a name that no other task has");
      if (layout.tasks.size() > kMostTasks) fail("{}: is more than {} tasks", task.where(), kMostTasks);
    }
  }
  if (!object.has("may_wait")) return;
  const std::vector<std::string> names = names_up_to(WorkThatWaits::encodings);
  for (const std::string& name : object.strings("may_wait")) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) object.reject("may_wait", "a list of weight_grads, updates and encodings");
    const auto work = static_cast<WorkThatWaits>(found - names.begin());
    if (std::ranges::find(layout.may_wait, work) == layout.may_wait.end()) layout.may_wait.push_back(work);
  }
}

void read_extra_file(const std::string& text, const std::string& file_name, Layout& layout) {
  const nlohmann::json value = parse_json(text, file_name);
  const JsonObject object(value, file_name);
  object.allow_only(std::array<std::string, 3>{"weft_extra", "tasks", "may_wait"});
  object.integer("weft_extra", kExtraVersion, kExtraVersion);
  read_extra(object, layout);
  if (layout.tasks.empty() && layout.may_wait.empty()) {
    fail("{}: has neither tasks nor work that may wait; keys 'tasks' and 'may_wait' say which", file_name);
  }
}

}  // namespace weft
