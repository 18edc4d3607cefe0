// A forward or backward pass of one rank through a model chunk, as the choice of cuts sees it: its operations one
// behind the other, each with its time whole and in parts. Weight gradients are not among them: nothing in the pass
// waits for them. Nor is the traffic of data parallelism.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/operation_part.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// Says how a stretch of a pass is cut. With one part it is not.
struct ChainCut {
  std::int32_t parts = 1;
  std::int32_t axis = kTokenAxis;
  friend bool operator==(const ChainCut&, const ChainCut&) = default;
};
// Returns the cuts into 2, 4 and 8 parts along each axis.
const std::vector<ChainCut>& chain_cuts();

class PassChain {
 public:
  PassChain(const StepGraph& graph, const CostModel& cost, ClassId rank_class, std::int32_t chunk, bool forward);

  std::size_t size() const { return links_.size(); }
  OpId operation(std::size_t i) const { return links_[i].operation; }
  // Returns whether it is an all-to-all of experts, which may run beside the others.
  bool is_exchange(std::size_t i) const { return links_[i].exchange; }
  // Between dispatch and combine of one layer lies the border before operation i.
  bool inside_experts(std::size_t i) const {
    return i > 0 && i < links_.size() && links_[i - 1].of_experts && links_[i].of_experts;
  }
  bool allows(std::size_t i, const ChainCut& cut) const { return ns(i, cut) >= 0; }
  // Returns the time of one part alone, which is negative where the operation may not be cut so.
  double ns(std::size_t i, const ChainCut& cut) const;

  // Returns what first..last-1 take in parts that follow each other: computation and exchanges each one at a time,
  // between two exchanges the first part as far as it goes, then the second. All must allow the cut.
  double pipelined_ns(std::size_t first, std::size_t last, const ChainCut& cut) const;

 private:
  static constexpr std::size_t kCuts = 7;  // whole; 2, 4, 8 by tokens; 2, 4, 8 by capacity
  struct Link {
    OpId operation;
    bool exchange = false, of_experts = false;
    std::array<double, kCuts> ns{};
  };
  static std::size_t index(const ChainCut& cut);

  std::vector<Link> links_;
};

}  // namespace weft
