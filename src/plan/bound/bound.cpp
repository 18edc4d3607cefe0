#include "plan/bound/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/bound/one_machine.hpp"

namespace weft {
namespace {

constexpr double kNever = -1;           // not reached
constexpr double kVisitBudget = 150e6;  // edge visits before v is sampled

class Search {
 public:
  explicit Search(const BoundProblem& problem)
      : p_(problem),
        out_(problem.nodes.size()),
        in_(problem.nodes.size()),
        jobs_(static_cast<std::size_t>(problem.resources)) {
    for (const BoundEdge& edge : p_.edges) {
      WEFT_CHECK(edge.distance == 0 || edge.distance == 1);
      out_[static_cast<std::size_t>(edge.from)].push_back({edge.to, edge.distance});
      in_[static_cast<std::size_t>(edge.to)].push_back({edge.from, edge.distance});
    }
    sort_nodes();
  }

  Bound run() {
    work_alone();
    std::vector<std::int32_t> candidates;
    for (std::size_t i = 0; i < p_.nodes.size(); ++i) {
      if (p_.nodes[i].once) candidates.push_back(static_cast<std::int32_t>(i));
    }
    const double visits = 4.0 * static_cast<double>(p_.edges.size() + p_.nodes.size());
    const auto affordable = static_cast<std::size_t>(std::max(1.0, kVisitBudget / visits));
    const std::size_t stride = std::max<std::size_t>(1, (candidates.size() + affordable - 1) / affordable);
    for (std::size_t i = 0; i < candidates.size(); i += stride) around(candidates[i]);
    return best_;
  }

 private:
  struct Step {
    std::int32_t node, distance;
  };

  void sort_nodes() {
    std::vector<std::int32_t> pending(p_.nodes.size(), 0);
    for (const BoundEdge& edge : p_.edges) pending[static_cast<std::size_t>(edge.to)] += edge.distance == 0 ? 1 : 0;
    for (std::size_t i = 0; i < pending.size(); ++i) {
      if (pending[i] == 0) order_.push_back(static_cast<std::int32_t>(i));
    }
    for (std::size_t i = 0; i < order_.size(); ++i) {
      for (const Step& step : out_[static_cast<std::size_t>(order_[i])]) {
        if (step.distance == 0 && --pending[static_cast<std::size_t>(step.node)] == 0) order_.push_back(step.node);
      }
    }
    WEFT_CHECK(order_.size() == p_.nodes.size());  // the graph verifier excludes cycles of distance 0
  }

  void work_alone() {
    std::vector<double> work(static_cast<std::size_t>(p_.resources), 0);
    for (const BoundNode& node : p_.nodes) {
      for (const BoundUse& use : node.uses) work[static_cast<std::size_t>(use.resource)] += use.work_ns;
    }
    for (std::size_t r = 0; r < work.size(); ++r) {
      if (work[r] > best_.period_ns) best_ = {work[r], static_cast<std::int32_t>(r), -1, 0, work[r], 0};
    }
  }

  // Longest chains of smallest parts between v and every node, by total distance 0 or 1. `reach[d][s]` counts the
  // nodes from v on but not s (forward), or after s but not v (backward).
  void chains(std::int32_t v, bool forward, std::vector<double> (&reach)[2]) const {
    for (auto& r : reach) r.assign(p_.nodes.size(), kNever);
    reach[0][static_cast<std::size_t>(v)] = 0;
    const auto& steps = forward ? out_ : in_;
    for (int d = 0; d < 2; ++d) {
      for (std::size_t k = 0; k < order_.size(); ++k) {
        const auto at = static_cast<std::size_t>(forward ? order_[k] : order_[order_.size() - 1 - k]);
        if (reach[d][at] < 0) continue;
        const bool is_end = !forward && at == static_cast<std::size_t>(v) && d == 0;
        const double through = reach[d][at] + (is_end ? 0 : p_.nodes[at].part_ns);
        for (const Step& step : steps[at]) {
          if (d + step.distance > 1) continue;
          double& there = reach[d + step.distance][static_cast<std::size_t>(step.node)];
          there = std::max(there, through);
        }
      }
    }
  }

  void around(std::int32_t v) {
    chains(v, true, head_);
    chains(v, false, tail_);
    const auto self = static_cast<std::size_t>(v);
    if (tail_[1][self] < 0) return;  // no way back to v
    const double own = p_.nodes[self].part_ns;
    // From first part to first part: v, and what it reaches within its iteration.
    for (std::size_t s = 0; s < p_.nodes.size(); ++s) {
      if (head_[0][s] >= 0 && tail_[1][s] >= 0) add_job(s, head_[0][s], tail_[1][s]);
    }
    finish_window(v);
    // From last part to last part: what v reaches in the next iteration, and the next v; behind a barrier also the rest
    // of v's own iteration.
    for (std::size_t s = 0; s < p_.nodes.size(); ++s) {
      if (head_[1][s] >= 0 && tail_[0][s] >= 0) {
        add_job(s, head_[1][s] - own, s == self ? 0 : tail_[0][s] + own);
      } else if (p_.nodes[self].barrier && s != self && head_[0][s] >= 0 && tail_[1][s] >= 0) {
        add_job(s, head_[0][s] - own, tail_[1][s] + own);
      }
    }
    finish_window(v);
  }

  void add_job(std::size_t node, double head, double tail) {
    for (const BoundUse& use : p_.nodes[node].uses) {
      std::vector<Job>& jobs = jobs_[static_cast<std::size_t>(use.resource)];
      if (jobs.empty()) used_.push_back(use.resource);
      jobs.push_back({head, use.work_ns, tail});
    }
  }

  void finish_window(std::int32_t v) {
    for (const std::int32_t resource : used_) {
      std::vector<Job>& jobs = jobs_[static_cast<std::size_t>(resource)];
      double work = 0, around_one = 0;
      for (const Job& job : jobs) {
        work += job.work;
        around_one = std::max(around_one, job.head + job.tail);
      }
      if (work + around_one > best_.period_ns) {  // no subset can exceed it
        const Job bound = one_machine_bound(jobs);
        const double period = bound.head + bound.work + bound.tail;
        if (period > best_.period_ns) best_ = {period, resource, v, bound.head, bound.work, bound.tail};
      }
      jobs.clear();
    }
    used_.clear();
  }

  const BoundProblem& p_;
  std::vector<std::vector<Step>> out_, in_;
  std::vector<std::int32_t> order_;
  std::vector<double> head_[2], tail_[2];
  std::vector<std::vector<Job>> jobs_;  // by resource, of one window
  std::vector<std::int32_t> used_;      // resources with jobs
  Bound best_;
};

}  // namespace

Bound lower_bound(const BoundProblem& problem) {
  return Search(problem).run();
}

namespace {

// The least that each link carries, whatever the algorithm: a collective that first reduces inside a node spares the
// outer links, a ring over all ranks the inner ones. No algorithm is credited with both at once, so each link gets the
// smaller of the two.
TransferCost least_on_each_link(const Operation& op, const CostModel& cost) {
  TransferCost least = cost.least_transfer(op);
  const TransferCost usual = cost.transfer(op);
  for (LinkWork& w : least.work) {
    for (const LinkWork& other : usual.work) {
      if (other.resource == w.resource) w.seconds = std::min(w.seconds, other.seconds);
    }
  }
  return least;
}

// Updates may be fused into one kernel; each one's time was rounded to whole nanoseconds, at least one.
double least_compute(const Operation& op, const CostModel& cost) {
  const auto alone = static_cast<double>(cost.least_compute(op).value);
  return op.role == Role::update ? std::max(0.0, alone - 1) : alone;
}

// Resources: the worker of each class, then the link directions.
BoundProblem bound_problem(const StepGraph& graph, const CostModel& cost) {
  BoundProblem problem;
  const auto workers = static_cast<std::int32_t>(graph.classes.size());
  problem.resources = workers + static_cast<std::int32_t>(cost.link_resources());
  std::map<std::int32_t, std::int32_t> node_of_transfer;
  std::vector<std::int32_t> node_of;
  for (const Operation& op : graph.operations) {
    const bool joint = op.communication && op.communication->transfer >= 0;
    std::int32_t node = static_cast<std::int32_t>(problem.nodes.size());
    if (joint) node = node_of_transfer.try_emplace(op.communication->transfer, node).first->second;
    node_of.push_back(node);
    if (node == static_cast<std::int32_t>(problem.nodes.size())) problem.nodes.emplace_back();
    BoundNode& n = problem.nodes[static_cast<std::size_t>(node)];
    const double times = op.per_micro_batch ? static_cast<double>(graph.micro_batches) : 1.0;
    n.once = !op.per_micro_batch || graph.micro_batches == 1;
    n.barrier = op.role == Role::grad_norm || op.role == Role::norm_reduce;
    if (op.communication) {
      const TransferCost least = least_on_each_link(op, cost);
      for (const LinkWork& w : least.work) n.uses.push_back({workers + w.resource.value, w.seconds * 1e9 * times});
      n.part_ns = std::max(n.part_ns, least.bandwidth_seconds() * 1e9 / kMaxParts);
    } else {
      const double alone = least_compute(op, cost);
      n.uses.push_back({op.rank_class.value, alone * times});
      n.part_ns = alone / kMaxParts;
    }
  }
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> edges;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Read& read : graph.operations[i].reads) {
      for (const OpId writer : writers[read.value.index()]) {
        edges.insert({node_of[writer.index()], node_of[i], read.distance});
      }
    }
  }
  for (const auto& [from, to, distance] : edges) problem.edges.push_back({from, to, distance});
  return problem;
}

// "nic out of stage 3": link classes are numbered, stages are what people know.
std::string link_name(const StepGraph& graph, const CostModel& cost, ResourceId resource) {
  std::string stages;
  for (const RankClass& c : graph.classes) {
    const bool uses = std::any_of(c.links.begin(), c.links.end(),
                                  [&](const LinkUse& use) { return use.link_class == resource.value / 2; });
    if (uses) stages += (stages.empty() ? " of " : ", ") + c.name;
  }
  return cost.resource_name(resource) + stages;
}

}  // namespace

StepBound step_bound(const StepGraph& graph, const CostModel& cost) {
  const Bound bound = lower_bound(bound_problem(graph, cost));
  StepBound result;
  result.seconds = bound.period_ns * 1e-9;
  if (bound.resource < 0) return result;
  const auto workers = static_cast<std::int32_t>(graph.classes.size());
  const std::string name = bound.resource < workers
                               ? graph.classes[static_cast<std::size_t>(bound.resource)].name + " compute"
                               : link_name(graph, cost, ResourceId{bound.resource - workers});
  const auto time = [](double ns) { return format_time(nanos_from_seconds(ns * 1e-9)); };
  result.explanation = fmt::format("{}: {} of work, {} before it can start, {} after it", name, time(bound.work_ns),
                                   time(bound.head_ns), time(bound.tail_ns));
  return result;
}

}  // namespace weft
