#include "planner/partition/userbuffer_cuts.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "planner/partition/own_row_cuts.hpp"
#include "planner/partition/row_choice.hpp"

namespace weft {
namespace {

enum class Half { none, attention, ffn };
Half half_of(Role role) {
  switch (role) {
    case Role::attention_gather:
    case Role::qkv:
    case Role::kv:
    case Role::attention_out:
    case Role::attention_reduce:
      return Half::attention;
    case Role::ffn_gather:
    case Role::ffn_in:
    case Role::ffn_out:
    case Role::ffn_reduce:
      return Half::ffn;
    default:
      return Half::none;
  }
}

bool is_at_entry(Role role) {
  return role == Role::attention_gather || role == Role::qkv || role == Role::kv || role == Role::ffn_gather ||
         role == Role::ffn_in;
}

// A communication is pipelined with these products.
using Pair = std::vector<OpId>;

// Layers with experts have userbuffers in attention only: the products of shared experts have none.
std::vector<Pair> pairs_of(const StepGraph& graph, const Transformer& model) {
  std::map<std::tuple<ClassId, std::int32_t, Phase, Half, bool>, Pair> pairs;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    const Half half = half_of(op.role);
    if (half == Half::none || op.layer < 0 || !op.per_micro_batch) continue;
    if (half == Half::ffn && model.is_moe_layer(op.layer)) continue;
    const bool entry = is_at_entry(op.role);
    const bool forward = op.phase == Phase::forward || op.phase == Phase::recompute;
    if (!forward && (op.phase != Phase::input_grad || entry)) continue;
    pairs[{op.rank_class, op.layer, op.phase, half, entry}].push_back(make_id<OpId>(i));
  }
  std::vector<Pair> result;
  for (auto& [key, pair] : pairs) result.push_back(std::move(pair));
  return result;
}

// Returns the gather of a pair and what reads it; nothing where the communication of the pair is a reduction.
std::optional<GatheredPair> gathered_pair(const StepGraph& graph, const Pair& pair) {
  GatheredPair result;
  for (const OpId id : pair) {
    if (!graph.op(id).is_transfer()) {
      result.products.push_back(id);
    } else if (gathers_rows_of_others(graph.op(id)) && !result.gather.valid()) {
      result.gather = id;
    } else {
      return std::nullopt;
    }
  }
  if (!result.gather.valid()) return std::nullopt;
  return result;
}

double whole_seconds(const StepGraph& graph, const CostModel& cost, const Pair& pair) {
  double sum = 0;
  for (const OpId id : pair) sum += seconds(cost.alone(graph.op(id)));
  return sum;
}

void exchange_where_faster(const StepGraph& graph, const CostModel& cost, const Pair& pair,
                           const GatheredPair& gathered, LayerCuts& cuts) {
  std::int64_t pieces = ring_exchange_pieces(graph.tokens.shards);
  while (pieces > 1 && !may_be_exchanged(graph, gathered, pieces)) pieces /= 2;
  if (!may_be_exchanged(graph, gathered, pieces)) return;
  if (exchanged_seconds(graph, cost, gathered, pieces) < whole_seconds(graph, cost, pair)) {
    cut_for_exchange(gathered, pieces, cuts);
  }
}

// All but the first part of the shorter of the two are hidden.
double pipelined_seconds(const StepGraph& graph, const CostModel& cost, const Pair& pair, std::int32_t parts) {
  double transfer = 0, compute = 0;
  for (const OpId id : pair) {
    const Operation& op = graph.op(id);
    (op.communication ? transfer : compute) += seconds(cost.alone(parts == 1 ? op : one_of(op, parts)));
  }
  return transfer + compute + (parts - 1) * std::max(transfer, compute);
}

bool can_be_cut(const StepGraph& graph, const Pair& pair, std::int32_t parts) {
  const auto communicates = [&](OpId id) { return graph.op(id).is_transfer(); };
  return std::any_of(pair.begin(), pair.end(), communicates) &&
         std::all_of(pair.begin(), pair.end(), [&](OpId id) { return may_be_cut_into(graph, graph.op(id), parts); });
}

std::int32_t best_parts(const StepGraph& graph, const CostModel& cost, const Pair& pair) {
  std::int32_t best = 1;
  double least = pipelined_seconds(graph, cost, pair, 1);
  for (std::int32_t parts = 2; parts <= kMaxRowCuts; parts *= 2) {
    if (!can_be_cut(graph, pair, parts)) continue;
    const double taken = pipelined_seconds(graph, cost, pair, parts);
    if (taken >= least) continue;
    least = taken;
    best = parts;
  }
  return best;
}

}  // namespace

LayerCuts userbuffer_cuts(const StepGraph& graph, const Transformer& model, const CostModel& cost) {
  LayerCuts cuts = no_cuts(graph);
  for (const Pair& pair : pairs_of(graph, model)) {
    if (const std::optional<GatheredPair> gathered = gathered_pair(graph, pair)) {
      exchange_where_faster(graph, cost, pair, *gathered, cuts);
      continue;
    }
    const std::int32_t parts = best_parts(graph, cost, pair);
    for (const OpId id : pair) cuts.parts[id.index()] = parts;
  }
  return cuts;
}

}  // namespace weft
