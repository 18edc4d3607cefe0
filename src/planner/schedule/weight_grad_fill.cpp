#include "planner/schedule/weight_grad_fill.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "graph/op_lists.hpp"

namespace weft {
namespace {

double hidden_ns(const FillProblem& problem, const std::vector<std::int32_t>& gap_of) {
  std::vector<double> filled(problem.gaps_ns.size(), 0);
  for (std::size_t f = 0; f < gap_of.size(); ++f) {
    if (gap_of[f] >= 0) filled[gap_of[f]] += problem.fillers_ns[f];
  }
  double sum = 0;
  for (std::size_t g = 0; g < filled.size(); ++g) sum += std::min(filled[g], problem.gaps_ns[g]);
  return sum;
}

// Every filler in every gap that it can hide, or in none.
class ExactFill {
 public:
  explicit ExactFill(const FillProblem& problem)
      : problem_(problem),
        gaps_of_(problem.fillers_ns.size()),
        left_(problem.gaps_ns),
        rest_(problem.fillers_ns.size() + 1, 0) {
    for (std::size_t g = 0; g < problem.usable.size(); ++g) {
      for (const std::int32_t f : problem.usable[g]) {
        gaps_of_[f].push_back(static_cast<std::int32_t>(g));
      }
    }
    for (std::size_t f = rest_.size() - 1; f-- > 0;) rest_[f] = rest_[f + 1] + problem.fillers_ns[f];
    best_ = fill_greedily(problem);
    current_.assign(problem.fillers_ns.size(), -1);
  }

  FillFound run() {
    place(0, 0);
    return best_;
  }

 private:
  void place(std::size_t f, double hidden) {
    if (f == current_.size()) {
      if (hidden > best_.hidden_ns) best_ = {current_, hidden};
      return;
    }
    if (hidden + rest_[f] <= best_.hidden_ns) return;
    for (const std::int32_t gap : gaps_of_[f]) {
      double& left = left_[gap];
      const double before = left, gain = std::min(std::max(0.0, left), problem_.fillers_ns[f]);
      if (gain <= 0) continue;
      left -= problem_.fillers_ns[f];
      current_[f] = gap;
      place(f + 1, hidden + gain);
      left = before;
    }
    current_[f] = -1;
    place(f + 1, hidden);
  }

  const FillProblem& problem_;
  std::vector<std::vector<std::int32_t>> gaps_of_;
  std::vector<double> left_, rest_;
  std::vector<std::int32_t> current_;
  FillFound best_;
};

// One backward pass of a class and chunk.
class BackwardFill {
 public:
  BackwardFill(const StepGraph& graph, const OpLists& readers, ClassId rank_class, std::int32_t chunk)
      : graph_(graph), readers_(readers) {
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (op.rank_class != rank_class || op.chunk != chunk || !op.per_micro_batch) continue;
      if (op.communication && op.communication->group == GroupKind::ep && op.phase != Phase::forward) {
        exchanges_.push_back(make_id<OpId>(i));
      }
      if (!op.communication && op.phase == Phase::weight_grad) gradients_.push_back(make_id<OpId>(i));
    }
  }

  void choose(const CostModel& cost, double exposed, ExchangeFill& result) const {
    FillProblem problem;
    for (const OpId id : exchanges_) {
      problem.gaps_ns.push_back(exposed * static_cast<double>(cost.alone(graph_.op(id)).value));
    }
    for (const OpId id : gradients_) problem.fillers_ns.push_back(static_cast<double>(cost.alone(graph_.op(id)).value));
    for (const OpId exchange : exchanges_) problem.usable.push_back(usable(exchange));
    const FillFound found = fill_greedily(problem);
    result.hidden_ns += found.hidden_ns;
    for (std::size_t f = 0; f < gradients_.size(); ++f) {
      const std::int32_t gap = found.gap_of[f];
      if (gap >= 0) result.hides[gradients_[f].index()] = exchanges_[gap];
    }
  }

 private:
  // Weight gradients stored before the exchange that it does not wait for. Those behind it stay where they are.
  std::vector<std::int32_t> usable(OpId exchange) const {
    std::vector<std::int32_t> found;
    for (std::size_t f = 0; f < gradients_.size(); ++f) {
      if (gradients_[f] < exchange && !reaches(gradients_[f], exchange)) found.push_back(static_cast<std::int32_t>(f));
    }
    return found;
  }

  // Weight gradients are read by what a step does once, and by nobody in backward, but for the odd reduction of ZeRO.
  bool reaches(OpId from, OpId to) const {
    std::vector<OpId> open{from};
    std::vector<OpId> seen;
    while (!open.empty()) {
      const OpId at = open.back();
      open.pop_back();
      if (at == to) return true;
      for (const Write& write : graph_.op(at).writes) {
        for (const OpId reader : readers_[write.value.index()]) {
          if (!graph_.op(reader).per_micro_batch || std::find(seen.begin(), seen.end(), reader) != seen.end()) continue;
          seen.push_back(reader);
          open.push_back(reader);
        }
      }
    }
    return false;
  }

  const StepGraph& graph_;
  const OpLists& readers_;
  std::vector<OpId> exchanges_, gradients_;
};

}  // namespace

FillFound fill_greedily(const FillProblem& problem) {
  FillFound found{std::vector<std::int32_t>(problem.fillers_ns.size(), -1), 0};
  for (std::size_t g = 0; g < problem.gaps_ns.size(); ++g) {
    double left = problem.gaps_ns[g];
    while (left > 0) {
      std::int32_t best = -1;
      double nearest = 0;
      for (const std::int32_t f : problem.usable[g]) {
        const double ns = problem.fillers_ns[f];
        if (found.gap_of[f] >= 0 || ns <= 0) continue;
        const double off = std::abs(ns - left);
        if (best >= 0 && off >= nearest) continue;
        best = f;
        nearest = off;
      }
      if (best < 0) break;
      found.gap_of[best] = static_cast<std::int32_t>(g);
      left -= problem.fillers_ns[best];
    }
  }
  found.hidden_ns = hidden_ns(problem, found.gap_of);
  return found;
}

FillFound fill_exactly(const FillProblem& problem) {
  WEFT_CHECK(problem.fillers_ns.size() <= kMaxExactFillers);
  return ExactFill(problem).run();
}

ExchangeFill fill_exchanges(const StepGraph& graph, const CostModel& cost, double exposed) {
  ExchangeFill result{std::vector<OpId>(graph.operations.size())};
  std::int32_t chunks = 1;
  for (const Operation& op : graph.operations) chunks = std::max(chunks, op.chunk + 1);
  const OpLists readers = readers_by_value(graph);
  for (std::size_t c = 0; c < graph.classes.size(); ++c) {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
      BackwardFill(graph, readers, make_id<ClassId>(c), chunk).choose(cost, exposed, result);
    }
  }
  return result;
}

}  // namespace weft
