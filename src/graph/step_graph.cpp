#include "graph/step_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/checked.hpp"
#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "graph/build/class_builder.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"

namespace weft {

std::string_view name_of(ValueKind kind) {
  static constexpr std::string_view kNames[] = {"parameter",  "gradient",        "optimizer_state",
                                                "activation", "activation_grad", "scalar"};
  return enum_name(kNames, kind);
}

std::int64_t Value::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t n : shape) product = checked_product({product, n}, name);
  return product;
}

Bytes Value::bytes() const {
  if (bytes_per_element <= 0) return wire_bytes(elements(), format(), name);
  const double total = std::ceil(static_cast<double>(elements()) * bytes_per_element);
  if (total > 9e18) fail("{}: the size does not fit in 63 bits", name);
  return {static_cast<std::int64_t>(total)};
}

namespace {

template <class Touches>
ValueId find_operand(const Touches& touches, Operand operand) {
  const auto found = std::find_if(touches.begin(), touches.end(), [&](const auto& t) { return t.operand == operand; });
  return found == touches.end() ? ValueId{} : found->value;
}

ValueId checked(const Operation& op, ValueId found, Operand operand, const char* verb) {
  if (!found.valid()) fail("'{}' {} no '{}'", describe(op), verb, name_of(operand));
  return found;
}

}  // namespace

ValueId find_read(const Operation& op, Operand operand) {
  return find_operand(op.reads, operand);
}

ValueId find_write(const Operation& op, Operand operand) {
  return find_operand(op.writes, operand);
}

ValueId read_of(const Operation& op, Operand operand) {
  return checked(op, find_read(op, operand), operand, "reads");
}

ValueId write_of(const Operation& op, Operand operand) {
  return checked(op, find_write(op, operand), operand, "writes");
}

bool writes_value(const Operation& op, ValueId value) {
  return std::any_of(op.writes.begin(), op.writes.end(), [&](const Write& write) { return write.value == value; });
}

std::vector<Carried> carried_by(const Operation& op) {
  std::vector<Carried> pairs;
  if (!op.is_transfer() || op.reads.size() != op.writes.size()) return pairs;
  for (std::size_t i = 0; i < op.reads.size(); ++i) pairs.push_back({op.reads[i].value, op.writes[i].value});
  return pairs;
}

bool carries_one_value(const Operation& op) {
  return op.is_transfer() && op.reads.size() == 1 && op.writes.size() == 1;
}

std::string describe(const Operation& op) {
  if (!op.task_name.empty()) return op.task_name;
  // Every operation of a timeline has a name: appending is several times as fast as formatting.
  std::string text;
  text.reserve(64);
  if (op.layer >= 0) text.append("layer ").append(fmt::format_int(op.layer).c_str()).append(" ");
  if (op.subject != op.role) text.append(name_of(op.subject)).append(" ");
  text.append(name_of(op.role)).append(" ").append(name_of(op.phase));
  if (op.rule != Substitution::none && op.communication) {
    text.append(" ").append(name_of(op.communication->collective)).append(" ");
    text.append(in_words(op.communication->scope, op.communication->levels));
  }
  if (is_part(op) && op.origins.front().axis == kOwnFirstAxis) {
    const Origin& part = op.origins.front();
    text.append(is_own_piece(part) ? " own rows" : fmt::format(" rows of others, part {} of {}", op.part, part.of - 1));
  } else if (is_part(op)) {
    text.append(fmt::format(" part {} of {}", op.part + 1, op.origins.front().of));
  } else if (op.part > 0) {
    text.append(" part ").append(fmt::format_int(op.part).c_str());
  }
  if (op.turn >= 0) text.append(" turn ").append(fmt::format_int(op.turn).c_str());
  return text;
}

TokenRows token_rows(const Layout& layout) {
  const std::int64_t shards = layout.sequence_parallel ? layout.tp : 1;
  if (layout.has_slices()) {  // they are cut by rows already
    TokenRows tokens{.shards = shards};
    for (const std::int64_t length : layout.slice_tokens) tokens.slice_rows.push_back(length / layout.cp / shards);
    return tokens;
  }
  return {shards, layout.tokens() / shards, layout.cp == 1 ? layout.micro_batch : 0};
}

// A token's choices come before the next token's; with one choice GShard's order is the same.
bool gives_slots_in_token_order(const Experts& experts) {
  return experts.gate_order == GateOrder::position || (experts.gate_order == GateOrder::gshard && experts.top_k == 1);
}

std::int64_t TokenRows::capacity_of(std::int32_t turn) const {
  if (slice_rows.empty()) return routed.capacity;
  const std::int64_t own = rows_of(turn);
  if (!routed.balanced) return std::min(routed.capacity, own);
  return (own * routed.top_k + routed.experts - 1) / routed.experts;
}

RoutedSlots routed_slots(const Transformer& model, const Layout& layout) {
  if (!model.experts) return {};
  const Experts& experts = *model.experts;
  const std::int64_t rows = layout.tokens() / token_rows(layout).shards;
  const double copies = static_cast<double>(rows * experts.top_k);
  const double padded = experts.capacity_factor > 0 ? copies * experts.capacity_factor : copies;
  // A whole number of slots for each expert, so that every all-to-all piece has the same size.
  const auto capacity = static_cast<std::int64_t>(std::ceil(padded / static_cast<double>(experts.count)));
  // Without expert parallelism there is no all-to-all to hide, so experts stay whole. Where expert-tensor-parallel
  // ranks gather each other's tokens, their sizes would be data too, so the runtime exchanges padded slots.
  return {.experts = experts.count,
          .top_k = experts.top_k,
          .capacity = std::max<std::int64_t>(1, capacity),
          .balanced = experts.capacity_factor == 0,
          .in_token_order = gives_slots_in_token_order(experts) && layout.experts_exchange_slots() &&
                            !layout.experts_gather_tokens() && !layout.has_slices(),
          .uneven = layout.expert_exchange == ExpertExchange::uneven,
          .forwarded = layout.ep_forwarding,
          .groups = experts.router_groups,
          .group_topk = experts.router_group_topk};
}

double distinct_share(const RoutedSlots& routed, std::int64_t domains) {
  // Groups that span domains make all of these possible; groups that share a domain are assumed to lie in different
  // ones.
  const std::int64_t spanned = std::max<std::int64_t>(1, domains / routed.groups);
  const std::int64_t possible = std::min(domains, routed.group_topk * spanned);
  const double each = static_cast<double>(routed.experts) / static_cast<double>(domains);
  const double pool = each * static_cast<double>(possible);
  double missed = 1;  // probability that none of a token's choices is in a given one of the possible domains
  for (std::int64_t choice = 0; choice < routed.top_k; ++choice) {
    const auto drawn = static_cast<double>(choice);
    missed *= std::max(0.0, pool - each - drawn) / (pool - drawn);
  }
  return static_cast<double>(possible) * (1 - missed) / static_cast<double>(routed.top_k);
}

std::vector<std::vector<OpId>> writers_of(const StepGraph& graph) {
  std::vector<std::vector<OpId>> writers(graph.values.size());
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Write& write : graph.operations[i].writes) writers[write.value.index()].push_back(make_id<OpId>(i));
  }
  return writers;
}

namespace {

// Throws Error where gradients are to be encoded between nodes, and no data-parallel group has ranks inside and outside
// of its nodes.
void require_two_levels(const Layout& layout, const IdVector<ClassId, RankClass>& classes) {
  if (!layout.compress.between_nodes) return;
  for (const RankClass& c : classes) {
    if (c.group(GroupKind::dp).has_node_levels()) return;
  }
  fail(
      "--compress gradients={}: needs nodes with equal numbers of data-parallel ranks, several of them and several in "
      "each; leave out @node",
      name_of(layout.compress));
}

}  // namespace

StepGraph build_step_graph(const Transformer& model, const Cluster& cluster, const Layout& layout) {
  validate(model);
  validate(layout, model, cluster.device_count());
  return build_step_graph(model, cluster, layout, find_rank_classes(cluster, layout, model_groups(model, layout)));
}

StepGraph build_step_graph(const Transformer& model, const Cluster& cluster, const Layout& layout,
                           const RankClasses& classes) {
  validate(model);
  validate(layout, model, cluster.device_count());
  StepGraph graph;
  graph.micro_batches = layout.layer_groups();
  graph.tokens = token_rows(layout);
  graph.tokens.routed = routed_slots(model, layout);
  // The slots of a part's tokens are data, which nobody reads back from a GPU in the middle of a step.
  if (cluster.spec().execution.runtime == Runtime::cuda) graph.tokens.routed.in_token_order = false;
  graph.classes = classes.classes;
  graph.links = classes.links;
  require_two_levels(layout, graph.classes);
  TransferTable transfers;
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    ClassBuilder(graph, transfers, model, layout, make_id<ClassId>(c)).build();
    if (c == 0 && graph.classes.size() > 1) {  // the other classes are about as large
      graph.operations.reserve(graph.operations.size() * graph.classes.size() * 9 / 8);
      graph.values.reserve(graph.values.size() * graph.classes.size() * 9 / 8);
    }
  }
  return graph;
}

}  // namespace weft
