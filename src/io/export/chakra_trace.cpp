// Chakra's execution traces (et_def.proto of mlcommons/chakra): a stream of messages for each rank, one for each
// operation of a step with what it waits for and how long it takes (docs/export.md).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "cost/cost_model.hpp"
#include "io/chakra/chakra_fields.hpp"
#include "io/export/export_writers.hpp"
#include "io/proto_writer.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {
namespace {

enum NodeType : std::uint64_t { kCompute = 4, kSend, kReceive, kCollective };

// CollectiveCommType.
std::uint64_t collective_number(std::string_view name) {
  static const std::map<std::string_view, std::uint64_t> kNumbers{
      {"all_reduce", 0}, {"reduce", 1},     {"all_gather", 2},     {"gather", 3}, {"scatter", 4},
      {"broadcast", 5},  {"all_to_all", 6}, {"reduce_scatter", 7}, {"barrier", 9}};
  const auto found = kNumbers.find(name);
  return found == kNumbers.end() ? 0 : found->second;
}

ProtoMessage attribute(std::string_view name, chakra::AttributeField kind, std::uint64_t value) {
  ProtoMessage message;
  message.bytes(chakra::kAttributeName, name);
  message.number(kind, value);
  return message;
}

class ChakraWriter {
 public:
  explicit ChakraWriter(const Timeline& timeline) : timeline_(timeline) {
    for (const TimelineOperation& op : timeline.operations) {
      if (op.transfer >= 0) ends_[op.transfer].push_back(op.rank);
    }
  }

  // The operations of one iteration on a rank of the timeline. Ids are positions in the timeline, counted from 1.
  std::string write(std::int32_t rank) const {
    ProtoMessage metadata;
    metadata.bytes(1, "0.0.4");
    std::string stream = metadata.delimited();
    for (std::size_t i = 0; i < timeline_.operations.size(); ++i) {
      if (timeline_.operations[i].rank == rank) stream += node(i).delimited();
    }
    return stream;
  }

  // A rank's groups of a kind ("dp") have names of their own: simulators take ranks that say one name for one group.
  // The number is that of the lowest rank that has a file.
  std::string group_name(const TimelineOperation& op) const {
    return fmt::format("{}.{}", name(op.group), rank_number(lowest_member(op)));
  }
  std::int32_t lowest_member(const TimelineOperation& op) const {
    const auto found = ends_.find(op.transfer);
    return found == ends_.end() ? op.rank : *std::min_element(found->second.begin(), found->second.end());
  }

 private:
  bool is_message(const TimelineOperation& op) const {
    return op.activity == Activity::transfer && op.collective >= 0 && name(op.collective) == "send_recv";
  }
  std::string_view name(std::int32_t index) const { return timeline_.names[static_cast<std::size_t>(index)]; }

  ProtoMessage node(std::size_t index) const {
    const TimelineOperation& op = timeline_.operations[index];
    ProtoMessage node;
    node.number(chakra::kId, index + 1);
    const std::string of = op.micro_batch == kOncePerStep ? "" : fmt::format(" #{}", op.micro_batch.value);
    node.bytes(chakra::kName, fmt::format("{}{}", name(op.name), of));
    node.number(chakra::kType, op.activity == Activity::compute ? kCompute
                               : !is_message(op)                ? kCollective
                               : op.receives                    ? kReceive
                                                                : kSend);
    add_dependencies(node, index);
    node.number(chakra::kDuration, static_cast<std::uint64_t>((op.alone.value + 500) / 1000));
    node.message(chakra::kAttribute, attribute("is_cpu_op", chakra::kBool, 0));
    if (op.activity == Activity::transfer) add_transfer(node, op);
    return node;
  }

  void add_dependencies(ProtoMessage& node, std::size_t index) const {
    if (timeline_.dependency_begin.empty()) return;
    const auto begin = static_cast<std::size_t>(timeline_.dependency_begin[index]);
    const auto end = static_cast<std::size_t>(timeline_.dependency_begin[index + 1]);
    for (std::size_t i = begin; i < end; ++i) {
      const Dependency& dependency = timeline_.dependencies[i];
      const TimelineOperation& before = timeline_.operations[static_cast<std::size_t>(dependency.operation)];
      if (dependency.distance != 0 || before.rank != timeline_.operations[index].rank) continue;
      // Simulators wait for data dependencies alone, and memory must be free whatever the order.
      const bool order_alone = dependency.order && !dependency.memory;
      node.number(order_alone ? chakra::kControlDependencies : chakra::kDataDependencies,
                  static_cast<std::uint64_t>(dependency.operation) + 1);
    }
  }

  void add_transfer(ProtoMessage& node, const TimelineOperation& op) const {
    node.message(chakra::kAttribute,
                 attribute("comm_size", chakra::kInt64, static_cast<std::uint64_t>(op.bytes.value)));
    if (op.group >= 0) {
      ProtoMessage group;
      group.bytes(chakra::kAttributeName, "pg_name");
      group.bytes(chakra::kString, group_name(op));
      node.message(chakra::kAttribute, group);
    }
    if (!is_message(op)) {
      const std::uint64_t kind = op.collective < 0 ? 0 : collective_number(name(op.collective));
      node.message(chakra::kAttribute, attribute("comm_type", chakra::kInt64, kind));
      return;
    }
    const std::uint64_t own = rank_number(op.rank), other = rank_number(peer(op));
    node.message(chakra::kAttribute, attribute("comm_src", chakra::kInt32, op.receives ? other : own));
    node.message(chakra::kAttribute, attribute("comm_dst", chakra::kInt32, op.receives ? own : other));
    node.message(chakra::kAttribute, attribute("comm_tag", chakra::kInt32, static_cast<std::uint64_t>(op.transfer)));
  }

  std::uint64_t rank_number(std::int32_t rank) const {
    return static_cast<std::uint64_t>(timeline_.ranks[static_cast<std::size_t>(rank)].rank.value);
  }
  std::int32_t peer(const TimelineOperation& op) const {
    const auto found = ends_.find(op.transfer);
    if (found == ends_.end()) return op.rank;
    for (const std::int32_t rank : found->second) {
      if (rank != op.rank) return rank;
    }
    return op.rank;
  }

  const Timeline& timeline_;
  std::map<std::int32_t, std::vector<std::int32_t>> ends_;  // ranks by the number of a transfer
};

// The members of every group that the traces name, as ASTRA-sim's communicator groups have them. Groups of more ranks
// than plans list are missing, and those whose other files stand for ranks of other groups.
std::string groups_json(const Plan& plan, const Timeline& timeline, const ChakraWriter& writer) {
  std::map<std::pair<std::int32_t, std::string>, const ClassGroup*> groups;  // by class and the timeline's name
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->scope == Scope::self) continue;
    const Communication& c = *op.communication;
    const ClassGroup& group = plan.graph.classes[op.rank_class].group(c.group);
    if (!group.has_scope(c.scope, c.levels)) continue;
    const std::string scope = c.scope == Scope::whole ? "" : fmt::format(" {}", in_words(c.scope, c.levels));
    groups[{op.rank_class.value, fmt::format("{}{}", name_of(c.group), scope)}] = &group.scoped(c.scope, c.levels);
  }
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TimelineOperation& op : timeline.operations) {
    if (op.activity != Activity::transfer || op.group < 0) continue;
    const std::string name = writer.group_name(op);
    const auto found = groups.find({writer.lowest_member(op), timeline.names[static_cast<std::size_t>(op.group)]});
    if (json.contains(name) || found == groups.end()) continue;
    const std::vector<Rank>& ranks = found->second->ranks;
    const bool has_files = std::all_of(found->second->members.begin(), found->second->members.end(), [&](ClassId c) {
      return std::find(ranks.begin(), ranks.end(), plan.graph.classes[c].representative) != ranks.end();
    });
    if (!has_files) continue;
    for (const Rank rank : ranks) json[name].push_back(rank.value);
  }
  return json_text(json, 2) + "\n";
}

}  // namespace

void write_chakra_traces(ExportSheet& sheet) {
  const Cluster cluster(sheet.plan().cluster);
  const Timeline timeline = simulate_plan(sheet.whole(), CostModel(sheet.plan().graph, cluster, sheet.profile()));
  const ChakraWriter writer(timeline);
  bool alone = true;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    sheet.file(fmt::format("step.{}.et", timeline.ranks[rank].rank.value),
               writer.write(static_cast<std::int32_t>(rank)));
    alone &= timeline.ranks[rank].ranks == 1;
  }
  sheet.file("comm_groups.json", groups_json(sheet.plan(), timeline, writer));
  if (!alone) sheet.warn("ranks that do the same share a file, which has the number of the lowest of them");
  sheet.carries({Feature::operation_order, Feature::waits, Feature::transfer_parts, Feature::transfer_legs,
                 Feature::tensor_parallel_parts, Feature::expert_parts, Feature::woven_passes,
                 Feature::gradient_buckets, Feature::reductions_beside_compute, Feature::gathers_beside_compute,
                 Feature::messages_beside_compute, Feature::prefetch, Feature::schedule});
}

}  // namespace weft
