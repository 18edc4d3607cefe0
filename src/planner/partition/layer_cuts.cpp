#include "planner/partition/layer_cuts.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace weft {
namespace {

template <class Visit>
void for_each_pass(const StepGraph& graph, Visit visit) {
  std::int32_t chunks = 1;
  for (const Operation& op : graph.operations) chunks = std::max(chunks, op.chunk + 1);
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) visit(make_id<ClassId>(c), chunk);
  }
}

std::optional<OpId> first_exchange(const PassChain& chain) {
  for (std::size_t i = 0; i < chain.size(); ++i) {
    if (chain.is_exchange(i)) return chain.operation(i);
  }
  return std::nullopt;
}

// Experts of a layer are cut alike: by capacity, or all of them by tokens.
bool splits_experts(const PassChain& chain, std::size_t first, std::size_t last, const ChainCut& cut) {
  return cut.axis == kTokenAxis && (chain.inside_experts(first) || chain.inside_experts(last));
}

// A stretch that can be cut by capacity goes from an exchange to experts to the exchange back.
double with_expert_parts(const PassChain& chain, const ChainCut& cut) {
  double sum = 0;
  for (std::size_t i = 0; i < chain.size();) {
    std::size_t end = i;
    while (end < chain.size() && chain.allows(end, cut)) ++end;
    if (end > i) {
      sum += chain.pipelined_ns(i, end, cut);
      i = end;
    } else {
      sum += chain.ns(i++, {});
    }
  }
  return sum;
}

}  // namespace

LayerCuts no_cuts(const StepGraph& graph) {
  return {std::vector<std::int32_t>(graph.operations.size(), 1),
          std::vector<std::int32_t>(graph.operations.size(), kTokenAxis)};
}

LayerCuts merge_cuts(const LayerCuts& a, const LayerCuts& b) {
  LayerCuts result = a;
  for (std::size_t i = 0; i < result.parts.size(); ++i) {
    if (b.parts[i] == 1) continue;
    result.parts[i] = b.parts[i];
    result.axes[i] = b.axes[i];
  }
  return result;
}

LayerCuts expert_cuts(const StepGraph& graph, std::int32_t parts, bool forward) {
  LayerCuts cuts = no_cuts(graph);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if ((op.phase == Phase::forward) != forward || !may_be_cut_into(graph, op, parts, kCapacityAxis)) continue;
    cuts.parts[i] = parts;
    cuts.axes[i] = kCapacityAxis;
  }
  return cuts;
}

std::int32_t best_expert_parts(const StepGraph& graph, const CostModel& cost, bool forward) {
  std::vector<PassChain> passes;
  for_each_pass(graph, [&](ClassId c, std::int32_t chunk) {
    passes.emplace_back(graph, cost, c, chunk, forward);
    if (!first_exchange(passes.back())) passes.pop_back();
  });
  std::int32_t best = 1;
  double least = 0;
  for (const PassChain& pass : passes) least += with_expert_parts(pass, {1, kCapacityAxis});
  for (const std::int32_t parts : {2, 4, 8}) {
    double sum = 0;
    for (const PassChain& pass : passes) sum += with_expert_parts(pass, {parts, kCapacityAxis});
    if (sum >= least) continue;
    least = sum;
    best = parts;
  }
  return best;
}

PassCuts best_pass_cuts(const PassChain& chain, std::size_t longest) {
  struct Choice {
    double ns = 0;
    std::size_t from = 0;
    ChainCut cut = {};
  };
  std::vector<Choice> best(chain.size() + 1);
  for (std::size_t n = 1; n <= chain.size(); ++n) {
    best[n] = {best[n - 1].ns + chain.ns(n - 1, {}), n - 1, {}};
    for (const ChainCut& cut : chain_cuts()) {
      bool exchanges = false;
      for (std::size_t i = n; i > 0 && n - i < longest && chain.allows(i - 1, cut); --i) {
        exchanges = exchanges || chain.is_exchange(i - 1);
        if (!exchanges || splits_experts(chain, i - 1, n, cut)) continue;
        const double ns = best[i - 1].ns + chain.pipelined_ns(i - 1, n, cut);
        if (ns < best[n].ns) best[n] = {ns, i - 1, cut};
      }
    }
  }
  PassCuts result{{}, best.back().ns};
  for (std::size_t i = 1; i < best.size(); ++i) result.cuts.emplace_back();
  for (std::size_t n = chain.size(); n > 0; n = best[n].from) {
    std::fill(result.cuts.begin() + static_cast<std::ptrdiff_t>(best[n].from),
              result.cuts.begin() + static_cast<std::ptrdiff_t>(n), best[n].cut);
  }
  return result;
}

double CutsFound::exposed() const {
  return exchanges_ns > 0 ? std::clamp((ns - (whole_ns - exchanges_ns)) / exchanges_ns, 0.0, 1.0) : 0.0;
}

CutsFound best_layer_cuts(const StepGraph& graph, const CostModel& cost, bool forward) {
  CutsFound result{no_cuts(graph)};
  std::map<std::int32_t, PassCuts> shared;  // by transfer that ranks of several classes take part in
  for_each_pass(graph, [&](ClassId c, std::int32_t chunk) {
    const PassChain chain(graph, cost, c, chunk, forward);
    const std::optional<OpId> exchange = first_exchange(chain);
    if (!exchange) return;
    // Ranks that exchange with each other cut alike; the lowest class decides.
    const std::int32_t transfer = graph.op(*exchange).communication->transfer;
    const auto known = transfer < 0 ? shared.end() : shared.find(transfer);
    const PassCuts found = known == shared.end() ? best_pass_cuts(chain) : known->second;
    if (transfer >= 0) shared.emplace(transfer, found);
    if (found.cuts.size() != chain.size()) return;
    result.ns += found.ns;
    for (std::size_t i = 0; i < chain.size(); ++i) {
      result.cuts.parts[chain.operation(i).index()] = found.cuts[i].parts;
      result.cuts.axes[chain.operation(i).index()] = found.cuts[i].axis;
      result.whole_ns += chain.ns(i, {});
      if (chain.is_exchange(i)) result.exchanges_ns += chain.ns(i, {});
    }
  });
  return result;
}

}  // namespace weft
