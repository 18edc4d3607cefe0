// Reads docs/plan-format.md: first what the plan is about (model, cluster, layout), then the graph that
// follows from it, then the lines, each checked against the counts known by then.
#include "io/plan_json.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "graph/pipeline_run.hpp"
#include "graph/rank_classes.hpp"
#include "io/cluster_json.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_rows.hpp"
#include "io/layout_json.hpp"
#include "io/model_json.hpp"
#include "io/plan_json_limits.hpp"
#include "io/plan_json_parts.hpp"
#include "io/program_json.hpp"
#include "plan/waits.hpp"

namespace weft {
namespace {

using nlohmann::json;

// Calls `read` with every object of the array under `key` and its index; one at a time, since each carries
// the words that say where it stands.
template <class Read>
void for_each_line(const JsonObject& parent, const std::string& key, Read read) {
  const json& list = parent.array(key);
  for (std::size_t i = 0; i < list.size(); ++i) {
    read(JsonObject(list[i], fmt::format("{}: {}[{}]", parent.where(), key, i)), i);
  }
}

std::int64_t count_of(const JsonObject& file, const std::string& key) {
  const std::size_t size = file.array(key).size();
  // Ids are 32 bits wide; the limit on the file's size is far below, and this states what the casts rely on.
  WEFT_CHECK(size < kMaxPlanFileBytes);
  return static_cast<std::int64_t>(size);
}

class PlanReader {
 public:
  PlanReader(const json& value, const std::string& file_name) : value_(value), file_(value, file_name) {}

  Plan read() {
    check_version();
    file_.allow_only(std::vector<std::string>{"weft_plan", "policy", "model", "cluster", "layout", "micro_batches",
                                              "classes", "values", "operations", "waits", "windows", "thread_blocks",
                                              "programs", "conditions"});
    read_subject();
    rebuild_graph();
    for_each_line(file_, "classes", [&](const JsonObject& line, std::size_t c) { read_class(line, c); });
    read_values();
    read_operations();
    read_waits();
    read_windows();
    return std::move(plan_);
  }

  std::optional<PlanConditions> conditions() const {
    if (!file_.has("conditions")) return std::nullopt;
    return conditions_from_json(value_.at("conditions"), fmt::format("{}: conditions", file_.where()));
  }

 private:
  const json& part(const std::string& key) const {
    if (!file_.has(key)) file_.reject(key, "an object");
    return value_.at(key);
  }

  void check_version() const {
    const std::int64_t version = file_.integer("weft_plan", 0);
    if (version == kPlanVersion) return;
    fail(
        "{}: key 'weft_plan': version {} of the plan format is not {}, the only one that this weft reads; make the "
        "plan "
        "anew with 'weft plan ... --out DIR'",
        file_.where(), version, kPlanVersion);
  }

  void read_subject() {
    plan_.policy = file_.string("policy");
    plan_.thread_blocks = static_cast<std::int32_t>(file_.integer_or("thread_blocks", 0, 0, kMaxThreadBlocks));
    plan_.model = model_from_json(part("model"), file_.where() + ": model");
    plan_.cluster = cluster_from_json(part("cluster"), file_.where() + ": cluster");
    plan_.layout = layout_from_json(part("layout"), file_.where() + ": layout");
    try {
      check_plan_limits(plan_.model, plan_.cluster, plan_.layout);
    } catch (const Error& error) {
      fail("{}: {}", file_.where(), error.what());
    }
  }

  // Classes and links of the plan; of the operations only the number is needed.
  void rebuild_graph() {
    counts_.classes = count_of(file_, "classes");
    counts_.values = count_of(file_, "values");
    counts_.operations = count_of(file_, "operations");
    counts_.chunks = plan_.layout.vpp;
    counts_.layers = plan_.model.layers;
    counts_.micro_batches = plan_.layout.layer_groups();
    if (file_.integer("micro_batches", 1) != counts_.micro_batches) {
      file_.reject("micro_batches", fmt::format("{}, which follows from the layout", counts_.micro_batches));
    }
    const Cluster cluster(plan_.cluster);
    try {
      check_size_of_graph(cluster);
      StepGraph graph = build_step_graph(plan_.model, cluster, plan_.layout);
      counts_.origins = static_cast<std::int64_t>(graph.operations.size());
      plan_.graph.micro_batches = graph.micro_batches;
      plan_.graph.tokens = graph.tokens;
      plan_.graph.classes = std::move(graph.classes);
      plan_.graph.links = std::move(graph.links);
    } catch (const Error& error) {
      fail("{}: {}", file_.where(), error.what());
    }
  }

  // A layer is more than one operation of every class that holds it. So what building the graph costs is
  // bounded by the size of the file, whatever the model and the cluster in it claim.
  void check_size_of_graph(const Cluster& cluster) const {
    const RankClasses found = find_rank_classes(cluster, plan_.layout, model_groups(plan_.model, plan_.layout));
    if (static_cast<std::int64_t>(found.classes.size()) != counts_.classes) {
      fail("key 'classes': {} are listed, but model, cluster and layout make {}", counts_.classes,
           found.classes.size());
    }
    const std::vector<std::int64_t> per_chunk = layers_per_chunk(plan_.layout, plan_.model);
    const PipelineShape shape = shape_of(plan_.layout);
    std::int64_t layers = 0;
    for (const RankClass& c : found.classes) {
      for (std::int64_t chunk = 0; chunk < plan_.layout.vpp; ++chunk)
        layers += per_chunk[shape.number_of(c.stage, chunk)];
    }
    if (counts_.operations < layers) {
      fail("key 'operations': {} are too few for {} layers (of all classes together)", counts_.operations, layers);
    }
  }

  void check_rank_class(const JsonObject& line, const RankClass& expected) const {
    const auto same = [&](const std::string& key, const auto& value, const auto& wanted) {
      if (value != wanted) line.reject(key, fmt::format("'{}', which follows from cluster and layout", wanted));
    };
    same("name", line.string("name"), expected.name);
    same("ranks", line.integer("ranks", 1), expected.ranks);
    same("representative", line.integer("representative", 0), std::int64_t{expected.representative.value});
    same("stage", line.integer("stage", 0), expected.stage);
    same("device", line.string("device"), expected.device.name);
  }

  void read_class(const JsonObject& line, std::size_t index) {
    line.allow_only(std::vector<std::string>{"name", "ranks", "representative", "stage", "device", "memory_bytes",
                                             "queues", "blocks", "order", "frames"});
    check_rank_class(line, plan_.graph.classes[index]);
    ClassPlan result;
    result.memory = {line.integer("memory_bytes", 0, kMaxPlanBytes)};
    result.queues = read_queues(line);
    const std::vector<std::string> kinds = names_up_to(BlockKind::extra);
    for_each_line(line, "blocks", [&](const JsonObject& block, std::size_t) {
      block.allow_only(std::vector<std::string>{"kind", "chunk", "slice", "operations"});
      const auto kind = static_cast<BlockKind>(block.one_of("kind", kinds));
      const bool of_a_chunk = kind != BlockKind::update && kind != BlockKind::extra;
      const std::int64_t chunk = of_a_chunk ? block.integer("chunk", 0, counts_.chunks - 1)
                                            : block.integer_or("chunk", -1, -1, counts_.chunks - 1);
      const std::int64_t slice = block.integer_or("slice", -1, -1, plan_.layout.slices() - 1);
      result.blocks.push_back(
          {.kind = kind, .chunk = static_cast<std::int32_t>(chunk), .slice = static_cast<std::int32_t>(slice)});
      for (const std::int64_t id : block.integers("operations", 0, counts_.operations - 1)) {
        result.blocks.back().operations.push_back({static_cast<std::int32_t>(id)});
      }
    });
    result.order = read_order(line, result.blocks.size());
    if (line.has("frames")) result.frames = read_frames(line);
    plan_.classes.push_back(std::move(result));
  }

  // Rows of four where blocks come in sections; the plan's own check knows their lengths.
  std::vector<IssueSlot> read_order(const JsonObject& line, std::size_t blocks) const {
    const nlohmann::json& list = line.array("order");
    const JsonColumn block{"block", 0, static_cast<std::int64_t>(blocks) - 1};
    const JsonColumn micro_batch{"micro-batch", -1, counts_.micro_batches - 1};
    std::vector<IssueSlot> order;
    const auto add = [&](std::int64_t of_block, std::int64_t mb, std::int64_t first, std::int64_t last) {
      order.push_back({make_id<BlockId>(of_block), make_id<MicroBatch>(mb), static_cast<std::int32_t>(first),
                       static_cast<std::int32_t>(last)});
    };
    if (!list.empty() && list.front().is_array() && list.front().size() == 4) {
      const JsonColumn begin{"begin", 0, counts_.operations}, end{"end", -1, counts_.operations};
      for (const auto& row : json_rows<4>(line, "order", {block, micro_batch, begin, end})) {
        add(row[0], row[1], row[2], row[3]);
      }
      return order;
    }
    for (const auto& row : json_rows<2>(line, "order", {block, micro_batch})) {
      add(row[0], row[1], 0, -1);
    }
    return order;
  }

  std::vector<Frame> read_frames(const JsonObject& line) const {
    std::vector<Frame> frames;
    for_each_line(line, "frames", [&](const JsonObject& frame, std::size_t) {
      frame.allow_only(std::vector<std::string>{"base"});
      const std::vector<std::int64_t> bases = frame.integers("base", 0, kMaxPlanBytes);
      if (static_cast<std::int64_t>(bases.size()) != counts_.micro_batches) {
        frame.reject("base", fmt::format("a list of {} integers, one for every micro-batch", counts_.micro_batches));
      }
      frames.emplace_back();
      for (const std::int64_t base : bases) frames.back().base.push_back({base});
    });
    if (frames.size() > static_cast<std::size_t>(kMaxPlanFrames)) {
      line.reject("frames", fmt::format("an array of at most {} frames", kMaxPlanFrames));
    }
    return frames;
  }

  // Compute is one chain: with a second queue of that kind its order would not be what the plan says.
  static IdVector<QueueId, Queue> read_queues(const JsonObject& line) {
    IdVector<QueueId, Queue> queues;
    const std::vector<std::string> kinds = names_up_to(QueueKind::communication);
    for_each_line(line, "queues", [&](const JsonObject& queue, std::size_t i) {
      queue.allow_only(std::vector<std::string>{"name", "kind"});
      queues.push_back({queue.string("name"), static_cast<QueueKind>(queue.one_of("kind", kinds))});
      if ((queues.back().kind == QueueKind::compute) != (i == 0)) {
        queue.reject("kind", i == 0 ? "'compute', which queue 0 always is"
                                    : "'extra' or 'communication'; only queue 0 is 'compute'");
      }
    });
    if (queues.empty() || queues.size() > static_cast<std::size_t>(kMaxPlanQueues)) {
      line.reject("queues", fmt::format("an array of 1 to {} queues", kMaxPlanQueues));
    }
    return queues;
  }

  void read_values() {
    const ValueReader reader(counts_);
    std::vector<std::int64_t> bytes(plan_.classes.size(), 0);
    std::int64_t framed = 0;
    for_each_line(file_, "values", [&](const JsonObject& line, std::size_t i) {
      check_line_id(line, i);
      const Value value = reader.value(line);
      const Placement place = reader.placement(line, value);
      if (place.frame >= 0) {
        const auto frames = static_cast<std::int32_t>(plan_.classes[value.rank_class.index()].frames.size());
        if (place.frame >= frames || !value.per_micro_batch) {
          line.reject("frame",
                      fmt::format("one of the {} frames of its class, for a value of every micro-batch", frames));
        }
        framed += counts_.micro_batches;
        if (framed > kMaxPlanInstances) {
          fail("{}: with it frames hold more than {} values, counted once per micro-batch", line.where(),
               kMaxPlanInstances);
        }
      }
      std::int64_t& sum = bytes[value.rank_class.index()];
      sum += aligned(value.bytes()).value * place.copies;
      if (sum > kMaxPlanBytes)
        fail("{}: the values of its class together exceed {} bytes", line.where(), kMaxPlanBytes);
      plan_.graph.values.push_back(value);
      plan_.placements.push_back(place);
    });
  }

  void read_operations() {
    std::vector<ProgramRef> programs;
    if (file_.has("programs")) {
      const json& list = file_.array("programs");
      for (std::size_t i = 0; i < list.size(); ++i) {
        programs.emplace_back(carried_from_json(list[i], fmt::format("{}: programs[{}]", file_.where(), i)));
      }
    }
    const OperationReader reader(counts_, std::move(programs));
    std::int64_t instances = 0;
    for_each_line(file_, "operations", [&](const JsonObject& line, std::size_t i) {
      check_line_id(line, i);
      const Operation op = reader.operation(line);
      check_scope(line, op);
      instances += op.per_micro_batch ? counts_.micro_batches : 1;
      if (instances > kMaxPlanInstances) {
        fail("{}: with it the plan has more than {} operations a step, counted once per micro-batch", line.where(),
             kMaxPlanInstances);
      }
      plan_.issues.push_back(reader.issue(line, plan_.classes[op.rank_class.index()].queues.size()));
      plan_.graph.operations.push_back(op);
    });
  }

  void check_scope(const JsonObject& line, const Operation& op) const {
    if (!op.communication) return;
    const Communication& communication = *op.communication;
    const RankClass& c = plan_.graph.classes[op.rank_class.index()];
    const ClassGroup& group = c.group(communication.group);
    if (communication.scope == Scope::whole && communication.levels != kOwnLevels) {
      fail("{}: communication: key 'levels': needs a key 'scope' that says which of them", line.where());
    }
    if (group.has_scope(communication.scope, communication.levels)) return;
    const std::string missing = communication.levels != kOwnLevels ? in_words(communication.scope, communication.levels)
                                : group.borders.empty()            ? "inner and outer"
                                                                   : "middle and top";
    fail("{}: communication: key 'scope': value '{}': the {} group of {} has no {} groups", line.where(),
         name_of(communication.scope), name_of(communication.group), c.name, missing);
  }

  void read_waits() {
    const JsonColumn operation{"operation", 0, counts_.operations - 1}, until{"until", 0, counts_.operations - 1};
    std::int64_t instances = 0;
    for (const auto& [waiting, for_id, executions] :
         json_rows<3>(file_, "waits", {operation, until, {"executions", 0, 1}})) {
      const Wait wait{{static_cast<std::int32_t>(waiting)},
                      {static_cast<std::int32_t>(for_id)},
                      static_cast<std::int32_t>(executions)};
      instances += plan_.graph.op(wait.operation).per_micro_batch ? counts_.micro_batches : 1;
      if (instances > kMaxPlanInstances) {
        fail("{}: key 'waits'[{}]: with it the plan has more than {} waits a step, counted once per micro-batch",
             file_.where(), plan_.waits.size(), kMaxPlanInstances);
      }
      plan_.waits.push_back(wait);
    }
    try {
      check_waits(plan_);
    } catch (const Error& error) {
      fail("{}: {}", file_.where(), error.what());
    }
  }

  void read_windows() {
    const JsonColumn operation{"operation", 0, counts_.operations - 1}, release{"release", -1, counts_.operations - 1},
        deadline{"deadline", -1, counts_.operations - 1};
    for (const auto& [task, after, before, steps] :
         json_rows<4>(file_, "windows", {operation, release, deadline, {"steps", 0, 1}})) {
      if (plan_.windows.size() >= static_cast<std::size_t>(kMaxPlanInstances)) {
        fail("{}: key 'windows': has more than {} entries", file_.where(), kMaxPlanInstances);
      }
      plan_.windows.push_back({{static_cast<std::int32_t>(task)},
                               {static_cast<std::int32_t>(after)},
                               {static_cast<std::int32_t>(before)},
                               static_cast<std::int32_t>(steps)});
    }
  }

  const json& value_;
  JsonObject file_;
  PlanCounts counts_;
  Plan plan_;
};

}  // namespace

SavedPlan read_saved_plan(const std::string& text, const std::string& file_name) {
  if (text.size() > kMaxPlanFileBytes) {
    fail("{}: {} bytes are more than the {} that a plan file may have", file_name, text.size(), kMaxPlanFileBytes);
  }
  const json value = parse_json(text, file_name);
  PlanReader reader(value, file_name);
  SavedPlan saved{reader.read(), reader.conditions()};
  return saved;
}

Plan read_plan_json(const std::string& text, const std::string& file_name) {
  return read_saved_plan(text, file_name).plan;
}

}  // namespace weft
