#include "planner/partition/slice_choice.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxUnits = 64;

// Returns the tokens of a unit: as few as make no more than kMaxUnits, and as context and sequence parallelism can
// divide.
std::int64_t tokens_of_unit(const Layout& layout) {
  const std::int64_t step = layout.cp * (layout.sequence_parallel ? layout.tp : 1);
  for (std::int64_t tokens = step; tokens < layout.seq; tokens += step) {
    if (layout.seq % tokens == 0 && layout.seq / tokens <= kMaxUnits) return tokens;
  }
  return layout.seq;
}

// A send runs beside compute.
bool counts_for_pass(const Operation& op) {
  const bool sends =
      op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
  return op.per_micro_batch && !sends;
}

// What a rank of every class takes for some operations of a pass: computing them, or issuing them where that is longer.
class PassTimeByClass {
 public:
  PassTimeByClass(std::size_t classes, const CostModel& cost) : cost_(cost), work_(classes, 0), issue_(classes, 0) {}

  void add(const Operation& op) {
    work_[op.rank_class] += cost_.alone(op).value;
    issue_[op.rank_class] += cost_.launch(op).value;
  }
  std::int64_t slowest() const {
    return std::max(*std::max_element(work_.begin(), work_.end()), *std::max_element(issue_.begin(), issue_.end()));
  }

 private:
  const CostModel& cost_;
  IdVector<ClassId, std::int64_t> work_, issue_;
};

// The last slice of a sequence, to be asked what it would take with fewer tokens before it.
class LastSlice {
 public:
  LastSlice(const StepGraph& graph, const CostModel& cost, const Layout& layout)
      : seq_(layout.seq), always_(graph.classes.size(), cost) {
    for (const Operation& op : graph.operations) {
      if (!counts_for_pass(op) || op.turn + 1 != layout.slices()) continue;
      // What context-parallel ranks send each other is of the slice alone.
      const bool of_keys = op.role == Role::kv_gather || op.role == Role::kv_reduce;
      const bool meets_keys = op.role == Role::attention || (of_keys && !op.is_transfer());
      if (meets_keys) {
        meeting_keys_.push_back(op);
      } else {
        always_.add(op);
      }
    }
  }

  // On the slowest stage, where so many tokens lie before it.
  std::int64_t time_behind(std::int64_t before, std::int64_t tokens) const {
    PassTimeByClass time = always_;
    for (Operation op : meeting_keys_) {
      if (op.role == Role::kv_gather && before == 0) continue;
      if (op.role == Role::attention) {
        op.key.dims[3] = op.key.causal_half ? 2 * before + tokens : before + tokens;
      } else {
        op.key.dims[0] = op.key.dims[0] / seq_ * (before + tokens);
      }
      time.add(op);
    }
    return time.slowest();
  }

 private:
  std::int64_t seq_;
  std::vector<Operation> meeting_keys_;
  PassTimeByClass always_;  // what does not depend on the tokens before it
};

std::int64_t time_of_whole(const StepGraph& graph, const CostModel& cost) {
  PassTimeByClass time(graph.classes.size(), cost);
  for (const Operation& op : graph.operations) {
    if (counts_for_pass(op)) time.add(op);
  }
  return time.slowest();
}

// The slices with the least sum of times among those of which none takes longer than `longest`; none where there are no
// such slices.
struct SlicesFound {
  std::vector<std::int64_t> lengths;
  std::int64_t sum = std::numeric_limits<std::int64_t>::max();
};
SlicesFound least_sum(const SliceProblem& problem, std::int64_t longest) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> least(static_cast<std::size_t>(problem.units) + 1, kNone), first = least;  // by begin
  least.back() = 0;
  for (std::int64_t begin = problem.units - 1; begin >= 0; --begin) {
    for (std::int64_t length = 1; begin + length <= problem.units; ++length) {
      const std::int64_t time = problem.times[begin][length - 1], rest = least[begin + length];
      if (time > longest || rest == kNone || time + rest >= least[begin]) continue;
      least[begin] = time + rest;
      first[begin] = length;
    }
  }
  SlicesFound found;
  found.sum = least.front();
  if (found.sum == kNone) return found;
  for (std::int64_t at = 0; at < problem.units; at += first[at]) found.lengths.push_back(first[at]);
  return found;
}

}  // namespace

std::vector<std::int64_t> best_slices(const SliceProblem& problem) {
  std::set<std::int64_t> bounds;
  for (const std::vector<std::int64_t>& row : problem.times) bounds.insert(row.begin(), row.end());
  SlicesFound best;
  double least = std::numeric_limits<double>::max();
  for (const std::int64_t longest : bounds) {
    const double of_others = static_cast<double>(problem.stages - 1) * static_cast<double>(longest);
    if (of_others >= least) break;
    SlicesFound found = least_sum(problem, longest);
    const double step = static_cast<double>(problem.sequences) * static_cast<double>(found.sum) + of_others;
    if (found.lengths.empty() || step >= least) continue;
    least = step;
    best = std::move(found);
  }
  return best.lengths;
}

std::vector<std::int64_t> choose_slices(const Transformer& model, const Cluster& cluster, const Layout& layout,
                                        const Profile& profile) {
  const std::int64_t unit = tokens_of_unit(layout);
  SliceProblem problem{layout.seq / unit, layout.pp, layout.micro_batches(), {}};
  for (std::int64_t begin = 0; begin < problem.units; ++begin) {
    problem.times.emplace_back(static_cast<std::size_t>(problem.units - begin));
  }
  Layout probe = layout;
  probe.slice_tokens.clear();
  const RankClasses classes = find_rank_classes(cluster, probe, model_groups(model, probe));
  for (std::int64_t length = 1; length <= problem.units; ++length) {
    if (length < problem.units) {
      probe.slice_tokens = {layout.seq - length * unit, length * unit};
    } else {
      probe.slice_tokens.clear();
    }
    const StepGraph graph = build_step_graph(model, cluster, probe, classes);
    const CostModel cost(graph, cluster, profile);
    if (length == problem.units) {
      problem.times[0].back() = time_of_whole(graph, cost);
      continue;
    }
    const LastSlice slice(graph, cost, probe);
    for (std::int64_t begin = 0; begin + length <= problem.units; ++begin) {
      problem.times[begin][length - 1] = slice.time_behind(begin * unit, length * unit);
    }
  }
  std::vector<std::int64_t> slices = best_slices(problem);
  if (slices.size() == 1) return {};
  for (std::int64_t& length : slices) length *= unit;
  return slices;
}

}  // namespace weft
