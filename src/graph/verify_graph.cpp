#include "graph/verify_graph.hpp"

#include <set>
#include <tuple>

#include "graph/operation_part.hpp"
#include "graph/verify/rules.hpp"

namespace weft {
namespace {

void verify_value(const StepGraph& graph, const Operation& op, ValueId id, const char* verb) {
  if (!id.valid() || id.index() >= graph.values.size()) {
    reject(graph, op, "{} value {}, but the graph has {} values", verb, id.value, graph.values.size());
  }
  const Value& value = graph.value(id);
  if (value.rank_class != op.rank_class) reject(graph, op, "{} '{}' of another rank class", verb, value.name);
}

void verify_ids(const StepGraph& graph) {
  if (graph.micro_batches < 1) fail("step graph: {} micro-batches; at least 1 is needed", graph.micro_batches);
  for (const RankClass& c : graph.classes) {
    const std::size_t kinds = group_kinds().size();
    if (c.groups.size() != kinds) fail("{}: has {} groups instead of {}", c.name, c.groups.size(), kinds);
  }
  for (const Operation& op : graph.operations) {
    if (!op.rank_class.valid() || op.rank_class.index() >= graph.classes.size()) {
      fail("{}: is of rank class {}, but the graph has {}", describe(op), op.rank_class.value, graph.classes.size());
    }
    if (op.key.phase != op.phase) reject(graph, op, "its key says phase {}", name_of(op.key.phase));
    for (const Read& read : op.reads) {
      verify_value(graph, op, read.value, "reads");
      if (read.distance != 0 && read.distance != 1) {
        reject(graph, op, "reads '{}' at distance {}; only 0 and 1 exist", graph.value(read.value).name, read.distance);
      }
    }
    for (const Write& write : op.writes) verify_value(graph, op, write.value, "writes");
  }
}

void verify_identities(const StepGraph& graph) {
  std::set<std::tuple<ClassId, std::int32_t, std::int32_t, Phase, Role, Role, std::int32_t, std::int32_t, std::int32_t>>
      seen;
  for (const Operation& op : graph.operations) {
    if (!seen.emplace(op.rank_class, op.chunk, op.layer, op.phase, op.role, op.subject, op.part, op.leg, op.turn)
             .second) {
      reject(graph, op, "another operation of chunk {} has the same identity", op.chunk);
    }
  }
}

// Parts of one transfer write their value together.
bool write_together(const Operation& a, const Operation& b) {
  return is_part(a) && is_part(b) && a.leg == b.leg && a.origins.front().operation == b.origins.front().operation;
}

void verify_writers(const StepGraph& graph) {
  std::vector<const Operation*> written(graph.values.size(), nullptr);
  for (const Operation& op : graph.operations) {
    for (const Write& write : op.writes) {
      const Operation*& writer = written[write.value.index()];
      if (writer && !graph.value(write.value).accumulated && !write_together(*writer, op)) {
        reject(graph, op, "writes '{}', which another operation writes already", graph.value(write.value).name);
      }
      writer = &op;
    }
  }
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) {
      if (!written[read.value.index()])
        reject(graph, op, "reads '{}', which nobody writes", graph.value(read.value).name);
    }
  }
}

void verify_micro_batches(const StepGraph& graph) {
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) {
      const Value& value = graph.value(read.value);
      if (!value.per_micro_batch) continue;
      if (!op.per_micro_batch) reject(graph, op, "runs once a step but reads '{}' of one micro-batch", value.name);
      if (read.distance == 1) {
        reject(graph, op, "reads '{}' of the previous iteration, but it belongs to one micro-batch", value.name);
      }
    }
    for (const Write& write : op.writes) {
      const Value& value = graph.value(write.value);
      if (value.per_micro_batch && value.accumulated && op.turn < 0) {
        reject(graph, op, "accumulates into '{}', which belongs to one micro-batch", value.name);
      }
      if (value.per_micro_batch && !op.per_micro_batch) {
        reject(graph, op, "runs once a step but writes '{}' of one micro-batch", value.name);
      }
      if (!value.per_micro_batch && op.per_micro_batch && !value.accumulated) {
        reject(graph, op, "writes '{}' in every micro-batch without accumulating", value.name);
      }
    }
  }
}

}  // namespace

std::string in_words(const StepGraph& graph, const Operation& op) {
  return fmt::format("{}: {}", graph.classes[op.rank_class.index()].name, describe(op));
}

void verify_graph(const StepGraph& graph) {
  verify_ids(graph);
  verify_identities(graph);
  verify_writers(graph);
  verify_micro_batches(graph);
  verify_operands(graph);
  verify_shapes(graph);
  verify_transfers(graph);
  verify_order(graph);
}

}  // namespace weft
