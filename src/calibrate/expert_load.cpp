#include "calibrate/expert_load.hpp"

#include <algorithm>

#include "exec/rank_exchange.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxGates = 8;  // of a rank: their loads travel one by one

// The number of gates of the rank class that has most; those of all slices of a sequence count as one.
std::size_t gates_of(const Plan& plan) {
  std::vector<std::size_t> gates(plan.graph.classes.size(), 0);
  for (const Operation& op : plan.graph.operations) {
    if (has_load_of_all_tokens(plan, op)) ++gates[op.rank_class.index()];
  }
  return *std::ranges::max_element(gates) * static_cast<std::size_t>(plan.layout.micro_batches());
}

// Of a rank's tokens in a micro-batch.
struct RowsAndSlots {
  double rows = 0, slots = 0;
};
RowsAndSlots rows_and_slots(const TokenRows& tokens) {
  RowsAndSlots sums;
  const auto turns = static_cast<std::int32_t>(std::max<std::size_t>(1, tokens.slice_rows.size()));
  for (std::int32_t turn = 0; turn < turns; ++turn) {
    sums.rows += static_cast<double>(tokens.rows_of(turn));
    sums.slots += static_cast<double>(tokens.slots_of(turn));
  }
  return sums;
}

// Rows that a rank sends to each of the ranks that share its experts.
using RowsByRank = std::vector<double>;

RowsByRank rows_to_ranks(std::span<const float> choices, std::int64_t capacity, std::int64_t ranks) {
  RowsByRank rows(static_cast<std::size_t>(ranks), 0.0);
  const std::size_t experts_each = choices.size() / rows.size();
  for (std::size_t e = 0; e < choices.size(); ++e) {
    rows[e / experts_each] += std::min(static_cast<double>(choices[e]), static_cast<double>(capacity));
  }
  return rows;
}

}  // namespace

ExpertLoad load_of(const std::vector<std::vector<double>>& sent, double balanced) {
  double computed = 0, exchanged = 0;
  for (std::size_t r = 0; r < sent.size(); ++r) {
    double out = 0, in = 0;
    for (std::size_t other = 0; other < sent.size(); ++other) {
      if (other == r) continue;
      out += sent[r][other];
      in += sent[other][r];
    }
    computed = std::max(computed, in + sent[r][r]);
    exchanged = std::max({exchanged, out, in});
  }
  const auto ranks = static_cast<double>(sent.size());
  const double leaves = balanced * (ranks - 1) / ranks;
  return {.computed = computed / balanced, .exchanged = leaves > 0 ? exchanged / leaves : 1};
}

ExpertLoad measure_expert_load(const Plan& plan, Communicator& communicator, CalibrationPasses& passes) {
  const RoutedSlots& routed = plan.graph.tokens.routed;
  const RowsAndSlots all = rows_and_slots(plan.graph.tokens);
  const double balanced = all.rows * static_cast<double>(routed.top_k);
  const std::size_t ep = plan.layout.ep;
  const std::size_t gates = std::min(gates_of(plan), kMaxGates);
  std::vector<RowsByRank> own;  // by gate; none where a pipeline stage has fewer
  passes.run_gates([&](std::span<const float> choices) {
    if (own.size() < gates) own.push_back(rows_to_ranks(choices, routed.capacity, plan.layout.ep));
  });

  const ModelGroups groups = model_groups(plan.model, plan.layout);
  SharedSum sum(communicator);
  double computed = 0, exchanged = 0, count = 0;
  for (std::size_t gate = 0; gate < gates; ++gate) {
    std::vector<RowsByRank> sent;  // by rank of the run
    for (std::int64_t r = 0; r < communicator.size(); ++r) {
      RowsByRank& row = sent.emplace_back();
      for (std::size_t d = 0; d < ep; ++d) {
        sum.start(r == communicator.rank() && gate < own.size() ? own[gate][d] : 0.0);
        row.push_back(sum.take());
      }
    }
    for (std::int64_t r = 0; r < communicator.size(); ++r) {
      const std::vector<Rank> group = group_members(plan.layout, groups, GroupKind::ep, make_id<Rank>(r));
      std::vector<RowsByRank> of_group;
      for (const Rank member : group) of_group.push_back(sent[member.index()]);
      if (std::ranges::all_of(of_group.front(), [](double rows) { return rows == 0; })) continue;
      const ExpertLoad load = load_of(of_group, balanced);
      computed += load.computed;
      exchanged += load.exchanged;
      ++count;
    }
  }
  if (count == 0) return {};
  return {
      .computed = computed / count, .exchanged = exchanged / count, .filled = routed.uneven ? balanced / all.slots : 1};
}

}  // namespace weft
