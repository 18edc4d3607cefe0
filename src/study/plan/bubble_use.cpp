#include "study/plan/bubble_use.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "planner/policy/policy.hpp"
#include "planner/schedule/extra_work.hpp"
#include "sim/simulate_plan.hpp"

namespace weft {
namespace {

// Below this share of a step a device counts as busy all the time.
constexpr double kLeastIdleShare = 0.001;

// By rank class: seconds of a step.
std::vector<double> curvature_work_of(const StepGraph& graph, const CostModel& cost) {
  std::vector<double> sums(graph.classes.size(), 0.0);
  for (const Operation& op : graph.operations) {
    if (op.role != Role::curvature && op.role != Role::inversion) continue;
    const auto times = static_cast<double>(op.per_micro_batch ? graph.micro_batches : 1);
    sums[op.rank_class.index()] += times * seconds(cost.compute(op));
  }
  return sums;
}

}  // namespace

std::string extra_work_in_words(const Layout& layout) {
  std::vector<std::string> words;
  if (layout.kfac_interval > 0) words.emplace_back("K-FAC's curvature and inversions");
  if (!layout.tasks.empty()) {
    words.push_back(fmt::format("{} task{}", layout.tasks.size(), layout.tasks.size() == 1 ? "" : "s"));
  }
  for (const WorkThatWaits work : layout.may_wait) {
    words.emplace_back(work == WorkThatWaits::weight_grads ? "weight gradients"
                       : work == WorkThatWaits::updates    ? "updates"
                                                           : "encodings of gradients");
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::optional<BubbleUse> bubble_use(const PolicyStudy& study) {
  std::set<std::string> names;
  for (const Operation& op : study.plan().graph.operations) {
    if (is_extra_work(op, study.plan().layout)) names.insert(describe(op));
  }
  if (names.empty()) return std::nullopt;
  const Timeline& timeline = study.timeline;
  double all = 0, ranks = 0;
  for (const TimelineRank& rank : timeline.ranks) ranks += static_cast<double>(rank.ranks);
  for (const TimelineOperation& op : timeline.operations) {
    if (!names.contains(timeline.names[static_cast<std::size_t>(op.name)])) continue;
    all += seconds(op.alone) * static_cast<double>(timeline.ranks[static_cast<std::size_t>(op.rank)].ranks);
  }
  const RankAccount& mean = study.accounting.mean;
  return BubbleUse{.extra_s = all / ranks, .step_s = mean.step_s, .compute_s = mean.compute_s};
}

std::int64_t kfac_interval_of_bubbles(const Transformer& model, const ClusterSpec& spec, Layout layout,
                                      const Profile& profile) {
  const Cluster cluster(spec);
  layout.kfac_interval = 1;
  const StepGraph with = build_step_graph(model, cluster, layout);
  const std::vector<double> extra = curvature_work_of(with, CostModel(with, cluster, profile));
  layout.kfac_interval = 0;
  const PlanRequest request{model, spec, layout, profile};
  const WholePlan whole = make_whole_plan(request, build_step_graph(model, cluster, layout), "serial");
  const Timeline timeline = simulate_plan(whole, CostModel(whole.plan().graph, cluster, profile));
  const Accounting accounting = account(timeline);
  double interval = 1;
  for (std::size_t i = 0; i < extra.size(); ++i) {
    const RankAccount& own = accounting.ranks[i];
    const double free = own.step_s - own.compute_s - own.slowdown_s;
    if (free < kLeastIdleShare * own.step_s) {
      fail("--kfac-interval auto: {} computes all the time and has no bubbles for K-FAC; give a number",
           timeline.ranks[i].name);
    }
    interval = std::max(interval, std::ceil(extra[i] / free));
  }
  return static_cast<std::int64_t>(interval);
}

}  // namespace weft
