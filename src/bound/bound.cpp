#include "bound/bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "base/text.hpp"
#include "bound/chains.hpp"
#include "bound/one_machine.hpp"
#include "bound/slowed.hpp"
#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"

namespace weft {
namespace {

constexpr double kVisitBudget = 300e6;  // visits of edges and nodes before v is sampled
constexpr double kRounding = 1e-9;      // of a sum of chains and work, relative and more than enough

class Search {
 public:
  explicit Search(const BoundProblem& problem)
      : p_(problem),
        chains_(problem),
        longest_(chains_.longest_from_each()),
        users_(at(problem.resources)),
        most_(users_.size()) {
    for (std::size_t i = 0; i < p_.nodes.size(); ++i) {
      for (const BoundUse& use : p_.nodes[i].uses) {
        users_[at(use.resource)].push_back({static_cast<std::int32_t>(i), use.work_ns});
      }
    }
  }

  Bound run() {
    work_alone();
    const double most = *std::max_element(work_.begin(), work_.end());
    std::vector<std::int32_t> candidates;
    for (std::size_t i = 0; i < p_.nodes.size(); ++i) {
      const auto v = static_cast<std::int32_t>(i);
      if (p_.nodes[i].once && may_exceed(most, longest_[i])) candidates.push_back(v);
    }
    const double visits = 4.0 * static_cast<double>(p_.edges.size() + p_.nodes.size());
    const auto affordable = static_cast<std::size_t>(std::max(1.0, kVisitBudget / visits));
    const std::size_t stride = std::max<std::size_t>(1, (candidates.size() + affordable - 1) / affordable);
    std::vector<std::int32_t> together;
    for (std::size_t i = 0; i < candidates.size(); i += stride) {
      if (may_exceed(most, longest_[at(candidates[i])])) together.push_back(candidates[i]);
      const bool last = i + stride >= candidates.size();
      if (together.empty() || (together.size() < Chains::kMaxStarts && !last)) continue;
      around(together);
      together.clear();
    }
    return best_;
  }

 private:
  struct User {
    std::int32_t node;
    double work_ns;
  };
  // A window goes from the first part of v to the first part of the next v, or from the last to the last.
  static constexpr std::size_t kFirstParts = 0, kWindows = 2;

  static std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

  void work_alone() {
    work_.assign(users_.size(), 0);
    for (std::size_t r = 0; r < work_.size(); ++r) {
      for (const User& user : users_[r]) work_[r] += user.work_ns;
      if (work_[r] > best_.period_ns) best_ = {work_[r], static_cast<std::int32_t>(r), -1, 0, work_[r], 0};
    }
  }

  // Returns whether a resource with that much work in all could give more than is known, where no head and tail
  // together have more than `chain`.
  bool may_exceed(double work, double chain) const { return (work + chain) * (1 + kRounding) > best_.period_ns; }

  // Finds what no subset of the jobs can exceed, for all of a resource's jobs and all starts in one pass.
  void add_up(const std::vector<std::int32_t>& together, std::size_t resource) {
    struct Sum {
      double work = 0, around_one = 0;
    };
    std::array<std::array<Sum, Chains::kMaxStarts>, kWindows> sums{};
    for (const User& user : users_[resource]) {
      for (std::size_t start = 0; start < together.size(); ++start) {
        for (std::size_t window = 0; window < kWindows; ++window) {
          const std::optional<Job> job = job_of(user, window, together[start], start);
          if (!job) continue;
          sums[window][start].work += job->work;
          sums[window][start].around_one = std::max(sums[window][start].around_one, job->head + job->tail);
        }
      }
    }
    for (std::size_t window = 0; window < kWindows; ++window) {
      for (std::size_t start = 0; start < together.size(); ++start) {
        most_[resource][window][start] = sums[window][start].work + sums[window][start].around_one;
      }
    }
  }

  void around(const std::vector<std::int32_t>& together) {
    chains_.find(together);
    // Every head and tail are parts of a way from v to the next v.
    double longest = -1;
    for (std::size_t start = 0; start < together.size(); ++start) {
      longest = std::max(longest, chains_.head(1, together[start], start));
    }
    if (longest < 0) return;  // there is none
    for (std::size_t r = 0; r < users_.size(); ++r) {
      most_[r] = {};
      if (may_exceed(work_[r], longest)) add_up(together, r);
    }
    for (std::size_t start = 0; start < together.size(); ++start) {
      for (std::size_t window = 0; window < kWindows; ++window) {
        for (std::size_t r = 0; r < users_.size(); ++r) {
          if (most_[r][window][start] > best_.period_ns) try_subsets(together[start], start, window, r);
        }
      }
    }
  }

  // Returns what runs in the window around v, which is `start` of chains_.
  std::optional<Job> job_of(const User& user, std::size_t window, std::int32_t v, std::size_t start) const {
    const std::int32_t s = user.node;
    if (window == kFirstParts) {
      // v, and what it reaches within its iteration.
      const double head = chains_.head(0, s, start), tail = chains_.tail(1, s, start);
      if (head >= 0 && tail >= 0) return Job{head, user.work_ns, tail};
      return std::nullopt;
    }
    // What v reaches in the next iteration, and the next v; behind a barrier also the rest of v's own iteration.
    const double own = p_.nodes[at(v)].part_ns;
    if (chains_.head(1, s, start) >= 0 && chains_.tail(0, s, start) >= 0) {
      return Job{chains_.head(1, s, start) - own, user.work_ns, s == v ? 0 : chains_.tail(0, s, start) + own};
    }
    if (p_.nodes[at(v)].barrier && s != v && chains_.head(0, s, start) >= 0 && chains_.tail(1, s, start) >= 0) {
      return Job{chains_.head(0, s, start) - own, user.work_ns, chains_.tail(1, s, start) + own};
    }
    return std::nullopt;
  }

  void try_subsets(std::int32_t v, std::size_t start, std::size_t window, std::size_t resource) {
    jobs_.clear();
    for (const User& user : users_[resource]) {
      if (const auto job = job_of(user, window, v, start)) jobs_.push_back(*job);
    }
    const Job bound = one_machine_bound(jobs_);
    const double burst = p_.burst_ns.empty() ? 0 : p_.burst_ns[resource];
    const double period = bound.head + bound.work + bound.tail - burst;
    if (period <= best_.period_ns) return;
    best_ = {period, static_cast<std::int32_t>(resource), v, bound.head, bound.work, bound.tail};
  }

  const BoundProblem& p_;
  Chains chains_;
  std::vector<double> longest_;           // by node: Chains::longest_from_each
  std::vector<std::vector<User>> users_;  // by resource
  std::vector<double> work_;              // by resource
  // By resource, window and start: what no subset of the jobs exceeds.
  std::vector<std::array<std::array<double, Chains::kMaxStarts>, kWindows>> most_;
  std::vector<Job> jobs_;  // of one window and resource
  Bound best_;
};

}  // namespace

Bound lower_bound(const BoundProblem& problem) {
  if (problem.resources == 0) return {};
  return Search(problem).run();
}

namespace {

// Returns the least that each link carries, whatever the algorithm: a collective that first reduces inside a node
// spares the outer links, a ring over all ranks the inner ones. No algorithm is credited with both at once, so each
// link gets the smaller of the two.
TransferCost least_of_whole(const Operation& op, const CostModel& cost) {
  TransferCost least = cost.least_transfer(op);
  const TransferCost usual = cost.transfer(op);
  for (LinkWork& w : least.work) {
    for (const LinkWork& other : usual.work) {
      if (other.resource == w.resource) w.seconds = std::min(w.seconds, other.seconds);
    }
  }
  return least;
}

// Experts that are cut by tokens work on the slots that are filled and no others.
TransferCost least_on_each_link(const StepGraph& graph, const Operation& op, const CostModel& cost) {
  TransferCost least = least_of_whole(op, cost);
  if (!works_on_slots(op) || cost.expert_sizes().are_data(op)) return least;
  TransferCost filled = least_of_whole(with_balanced_load(graph, op), cost);
  for (LinkWork& w : filled.work) w.seconds *= cost.expert_sizes().least_load(op);
  return filled.bandwidth_seconds() < least.bandwidth_seconds() ? filled : least;
}

// Updates may be fused into one kernel; each one's time was rounded to whole nanoseconds, at least one.
double least_compute_of_whole(const Operation& op, const CostModel& cost) {
  const auto alone = static_cast<double>(cost.least_compute(op).value);
  return op.role == Role::update ? std::max(0.0, alone - 1) : alone;
}

double least_compute(const StepGraph& graph, const Operation& op, const CostModel& cost) {
  const double least = least_compute_of_whole(op, cost);
  const ExpertSizes& sizes = cost.expert_sizes();
  if (sizes.are_data(op)) return least;
  if (!works_on_slots(op)) return least * sizes.least_of_weight_grad(op);
  return std::min(least, sizes.least_load(op) * least_compute_of_whole(with_balanced_load(graph, op), cost));
}

// The share of an operation that its smallest part may have.
double smallest_part(const StepGraph& graph, const Operation& op) {
  const double equal = 1.0 / kMaxParts;
  if (!gathered_operand(op) || graph.tokens.shards < 2) return equal;
  return std::min(equal, smallest_share(graph.tokens.shards, kMaxParts));
}

// Resources are the worker of each class, then the link directions.
BoundProblem bound_problem(const StepGraph& graph, const CostModel& cost, std::int64_t micro_batches) {
  BoundProblem problem;
  const auto workers = static_cast<std::int32_t>(graph.classes.size());
  problem.resources = workers + static_cast<std::int32_t>(cost.link_resources());
  problem.burst_ns.assign(problem.resources, 0);
  for (std::size_t r = 0; r < cost.link_resources(); ++r) {
    problem.burst_ns[static_cast<std::size_t>(workers) + r] = cost.burst_seconds(make_id<ResourceId>(r)) * 1e9;
  }
  std::map<std::int32_t, std::int32_t> node_of_transfer;
  std::vector<std::int32_t> node_of;
  for (const Operation& op : graph.operations) {
    const bool joint = op.communication && op.communication->transfer >= 0;
    std::int32_t node = static_cast<std::int32_t>(problem.nodes.size());
    if (joint) node = node_of_transfer.try_emplace(op.communication->transfer, node).first->second;
    node_of.push_back(node);
    if (node == static_cast<std::int32_t>(problem.nodes.size())) problem.nodes.emplace_back();
    BoundNode& n = problem.nodes[node];
    const double times = op.per_micro_batch ? static_cast<double>(micro_batches) : 1.0;
    n.once = !op.per_micro_batch || micro_batches == 1;
    n.barrier = op.role == Role::grad_norm || op.role == Role::norm_reduce;
    if (op.communication) {
      const TransferCost least = least_on_each_link(graph, op, cost);
      double alone = 0;  // the smallest part, after a pause
      for (const LinkWork& w : least.work) {
        n.uses.push_back({workers + w.resource.value, w.seconds * 1e9 * times});
        alone = std::max(alone, (w.seconds / kMaxParts - cost.burst_seconds(w.resource)) * 1e9);
      }
      // Products may begin with a rank's own rows, which wait for no part of the gather.
      if (gathers_rows_of_others(op)) alone = 0;
      n.part_ns = std::max(n.part_ns, alone);
    } else {
      const double alone = least_compute(graph, op, cost);
      n.uses.push_back({op.rank_class.value, alone * times});
      n.part_ns = alone * smallest_part(graph, op);
    }
  }
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  std::vector<std::tuple<std::int32_t, std::int32_t, std::int32_t>> edges;
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Read& read : graph.operations[i].reads) {
      for (const OpId writer : writers[read.value.index()]) {
        edges.emplace_back(node_of[writer.index()], node_of[i], read.distance);
      }
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
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

namespace {

std::string time_of(double ns) {
  return format_time(nanos_from_seconds(ns * 1e-9));
}

StepBound in_words(const StepGraph& graph, const CostModel& cost, const Bound& bound) {
  StepBound result;
  result.seconds = bound.period_ns * 1e-9;
  if (bound.resource < 0) return result;
  const auto workers = static_cast<std::int32_t>(graph.classes.size());
  const std::string name = bound.resource < workers ? graph.classes[bound.resource].name + " compute"
                                                    : link_name(graph, cost, ResourceId{bound.resource - workers});
  result.explanation = fmt::format("{}: {} of work, {} before it can start, {} after it", name, time_of(bound.work_ns),
                                   time_of(bound.head_ns), time_of(bound.tail_ns));
  return result;
}

StepBound larger(StepBound a, StepBound b) {
  return b.seconds > a.seconds ? std::move(b) : std::move(a);
}

// What a step's ranks compute and their links carry, at least.
class StepWork {
 public:
  // `micro_batches`: of these links carry traffic; all of them compute.
  StepWork(const StepGraph& graph, const CostModel& cost, std::int64_t micro_batches)
      : graph_(graph),
        cost_(cost),
        compute_(graph.classes.size(), 0),
        own_(graph.classes.size(), std::vector<double>(cost.link_resources(), 0)),
        all_(cost.link_resources(), 0) {
    for (const Operation& op : graph.operations) {
      const std::size_t c = op.rank_class.index();
      if (!op.communication) {
        compute_[c] += times(op, graph.micro_batches) * least_compute(graph, op, cost);
        continue;
      }
      for (const LinkWork& w : least_on_each_link(graph, op, cost).work) {
        const double work = times(op, micro_batches) * w.seconds * 1e9;
        own_[c][w.resource.index()] += work;
        all_[w.resource.index()] += work;
      }
    }
  }

  // The longest period that a rank's compute and the work of a link need, because they slow each other down; also where
  // the link of `bound` rests before and after its work.
  StepBound slowed_down(const Bound& bound, bool whole_steps) const {
    const auto workers = static_cast<std::int32_t>(graph_.classes.size());
    Slowed longest;
    for (const ClassId c : graph_.classes.ids()) {
      for (const ResourceId link : IdRange<ResourceId>(std::ssize(all_))) {
        if (own_[c.index()][link.index()] == 0) continue;
        if (whole_steps) look_at(c, link, all_[link.index()], 0, longest);
        if (bound.resource == workers + link.value) {
          look_at(c, link, bound.work_ns, bound.head_ns + bound.tail_ns, longest);
        }
      }
    }
    return longest.nanoseconds() > 0 ? in_words(longest) : StepBound{};
  }

 private:
  struct Slowed {
    ClassId rank_class;
    ResourceId link;
    double work = 0, rest = 0;
    SharedPeriod period;
    SlowedPeriod least;
    double nanoseconds() const { return std::max(least.compute, least.link); }
  };

  static double times(const Operation& op, std::int64_t micro_batches) {
    return op.per_micro_batch ? static_cast<double>(micro_batches) : 1.0;
  }

  // `work`: of the link, in a period in which it rests for `rest`.
  void look_at(ClassId c, ResourceId link, double work, double rest, Slowed& longest) const {
    // After a pause a link with a burst carries bytes in no time.
    if (cost_.burst_seconds(link) != 0) return;
    const CostModel::Interference least = cost_.least_interference(c, link);
    const double of_others = all_[link.index()] - own_[c.index()][link.index()];
    const SharedPeriod period{.compute = compute_[c.index()],
                              .link = work + rest,
                              .own = std::max(0.0, work - of_others),
                              .compute_slowdown = least.compute,
                              .transfer_slowdown = least.transfer};
    const Slowed found{c, link, work, rest, period, slowed(period)};
    if (found.nanoseconds() > longest.nanoseconds()) longest = found;
  }

  StepBound in_words(const Slowed& found) const {
    const SharedPeriod& period = found.period;
    const std::string_view name = graph_.classes[found.rank_class].name;
    if (found.least.compute >= found.least.link) {
      return {found.least.compute * 1e-9,
              fmt::format("{} compute: {} of work, which {} of transfers slow down by {}", name,
                          time_of(period.compute), time_of(period.own), time_of(found.least.compute - period.compute))};
    }
    const std::string waits = found.rest > 0 ? fmt::format(", {} before and after it", time_of(found.rest)) : "";
    return {found.least.link * 1e-9,
            fmt::format("{}: {} of work{}, which {} of compute slow down by {}", link_name(graph_, cost_, found.link),
                        time_of(found.work), waits, time_of(period.compute), time_of(found.least.link - period.link))};
  }

  const StepGraph& graph_;
  const CostModel& cost_;
  std::vector<double> compute_;           // by class, in nanoseconds
  std::vector<std::vector<double>> own_;  // by class and link: of the class's transfers
  std::vector<double> all_;               // by link
};

// All compute of a class between the forward of its first micro-batch and the backward of its last.
void add_micro_batches_between(const StepGraph& graph, const CostModel& cost, BoundProblem& problem) {
  const auto others = static_cast<double>(graph.micro_batches - 1);
  for (const ClassId c : graph.classes.ids()) {
    const auto between = static_cast<std::int32_t>(problem.nodes.size());
    double work = 0;
    for (const OpId id : graph.operations.ids()) {
      const Operation& op = graph.op(id);
      if (op.rank_class != c || !op.per_micro_batch || op.communication) continue;
      work += others * least_compute(graph, op, cost);
      const std::int32_t own = id.value;
      problem.edges.push_back(op.phase == Phase::forward ? BoundEdge{own, between, 0} : BoundEdge{between, own, 0});
    }
    problem.nodes.push_back({.uses = {{c.value, work}}, .part_ns = work, .once = true, .barrier = true});
  }
}

}  // namespace

StepBound step_bound(const StepGraph& graph, const CostModel& cost) {
  const Bound bound = lower_bound(bound_problem(graph, cost, graph.micro_batches));
  return larger(in_words(graph, cost, bound), StepWork(graph, cost, graph.micro_batches).slowed_down(bound, true));
}

StepBound step_bound_in_turn(const StepGraph& graph, const CostModel& cost, std::int64_t stages) {
  if (stages > 1 || graph.micro_batches == 1) return {};
  BoundProblem problem = bound_problem(graph, cost, 1);
  if (problem.nodes.size() != graph.operations.size()) return {};  // transfers of several classes: one node for each
  add_micro_batches_between(graph, cost, problem);
  const Bound bound = lower_bound(problem);
  return larger(in_words(graph, cost, bound), StepWork(graph, cost, 1).slowed_down(bound, false));
}

}  // namespace weft
