// Which weight gradients are computed while which all-to-all of backward travels (Lancet's weight gradient schedule).
// A weight gradient can hide an all-to-all if neither waits for the other. Each hides one at most; what is hidden is,
// summed over all-to-alls, the lesser of its time and that of the weight gradients that were given to it.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Plain numbers, so that small problems can be solved exactly.
struct FillProblem {
  std::vector<double> gaps_ns;                    // the all-to-alls, in the order of backward
  std::vector<double> fillers_ns;                 // the weight gradients
  std::vector<std::vector<std::int32_t>> usable;  // by gap: fillers that can hide it
};
struct FillFound {
  std::vector<std::int32_t> gap_of;  // by filler; -1: none
  double hidden_ns = 0;
};
// Gaps in order, those with the fewest fillers being the first; each takes what fits best as long as time is left: of
// the fillers the one whose time is nearest to what is left.
FillFound fill_greedily(const FillProblem& problem);
// The most that can be hidden. Exponential: more than 16 fillers are a broken invariant.
inline constexpr std::size_t kMaxExactFillers = 16;
FillFound fill_exactly(const FillProblem& problem);

// By operation of the graph: the all-to-all that a weight gradient hides; invalid: none. Weight gradients move behind
// the all-to-all, never ahead of where the graph has them. `exposed`: the share of every all-to-all that nothing else
// hides.
struct ExchangeFill {
  std::vector<OpId> hides;
  double hidden_ns = 0;  // of all passes
};
ExchangeFill fill_exchanges(const StepGraph& graph, const CostModel& cost, double exposed = 1);

}  // namespace weft
