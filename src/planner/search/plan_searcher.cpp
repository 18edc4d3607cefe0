#include "planner/memory_needs.hpp"
#include "planner/search/plan_searcher.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <optional>

#include "base/parallel.hpp"
#include "plan/happens_before.hpp"
#include "planner/passes.hpp"
#include "planner/schedule/late_order.hpp"

namespace weft {
namespace {

// What one thread of an ordinary machine plans and simulates in a second.
constexpr double kOperationsPerSecond = 400e3;
// So many micro-batches fill and drain a pipeline and show its steady part between.
constexpr std::int64_t kRounds = 2;
// A step is extrapolated where it has at least so many times the micro-batches that this takes.
constexpr std::int64_t kExtrapolateFrom = 2;
// By how much extrapolated steps may be off, relative.
constexpr double kMargin = 0.02;
// By how much a plan may be slower than another at first and yet end faster, relative.
constexpr double kPromise = 0.05;
// Of the budget, at least so much is for the search; the other policies, which are simulated in full, take the rest.
constexpr double kLeastSearchShare = 0.6;
// Of it, what the first descent has without pairs, and with them; the rest is for perturbations.
constexpr double kFirstDescentShare = 0.4;
// Of the budget, what orders by layers may take where a layout allows them.
constexpr double kLayerOrderShare = 0.3;
// Beside the budget, what orders with late operations may take where a layout allows them.
constexpr double kLateShare = 0.3;
// Beside the budget, what looking at single transfers may take in the end.
constexpr double kRefineShare = 0.1;
// Beside the budget, what layer traffic in levels may take where its groups have them.
constexpr double kLevelShare = 0.1;
// So many times, plans that turn out slower than extrapolated are replaced by the next best.
constexpr int kMostSurprises = 8;
// Of every kind of plan of pipelines with several model chunks a stage, so many are looked at with more micro-batches
// than the search has. With one chunk this gained little and took half as long again.
constexpr std::size_t kFinalistsOfChunks = 8;
constexpr int kMaxPerturbations = 64, kMaxFailedPerturbations = 4;

StepGraph with_micro_batches(const StepGraph& graph, std::int64_t micro_batches) {
  StepGraph result = graph;
  result.micro_batches = micro_batches;
  return result;
}

std::int64_t enough_micro_batches(const Layout& layout) {
  // A deep warm-up needs as many before it shows what a rank holds.
  const std::int64_t least = layout.pp == 1 ? 2 : std::max(kRounds * layout.pp, layout.warm_up_depth + layout.pp);
  // Without whole rounds loops have other orders.
  const bool in_loops = layout.schedule == PipelineSchedule::searched_loops;
  return std::min(layout.layer_groups(), least + (in_loops ? layout.layer_groups() % layout.pp : 0));
}

// Several model chunks take micro-batches in rounds of pp.
std::int64_t some_more_micro_batches(const Layout& layout) {
  const std::int64_t more = layout.vpp > 1 ? layout.pp : std::max<std::int64_t>(2, layout.pp / 2);
  return std::min(layout.layer_groups(), enough_micro_batches(layout) + more);
}

PlanRequest with_micro_batches(const PlanRequest& request, std::int64_t micro_batches) {
  PlanRequest result = request;
  const Layout& layout = request.layout;
  result.layout.global_batch =
      layout.dp * layout.micro_batch * layout.group_size() * layout.directions() * micro_batches;
  return result;
}

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
  std::uint64_t z = state += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace

bool PlanSearcher::Outcome::operator<(const Outcome& other) const {
  if (can_run != other.can_run) return can_run;
  if (fits != other.fits) return fits;
  if (!fits && memory != other.memory) return memory < other.memory;
  return step_s < other.step_s;
}

bool PlanSearcher::is_better_result(const Outcome& a, const Outcome& b) {
  if (a.can_run != b.can_run) return a.can_run;
  if (a.fits != b.fits) return a.fits;
  return a.step_s < b.step_s;
}

bool PlanSearcher::comes_close(const Outcome& outcome, const Outcome& best) {
  if (!outcome.can_run || outcome.fits != best.fits) return outcome.can_run && outcome.fits;
  return outcome.step_s <= best.step_s * (1 + kPromise);
}

PlanSearcher::PlanSearcher(const PlanRequest& request, const StepGraph& graph)
    : request_(request),
      graph_(graph),
      small_{with_micro_batches(request, enough_micro_batches(request.layout)),
             with_micro_batches(graph, enough_micro_batches(request.layout))},
      more_{with_micro_batches(request, some_more_micro_batches(request.layout)),
            with_micro_batches(graph, some_more_micro_batches(request.layout))},
      space_(request, graph),
      budget_(request.search.budget_s * kOperationsPerSecond) {}

PlanSearcher::Outcome PlanSearcher::evaluate(const PlanRequest& request, const SharedGraph& graph,
                                             const Overlap& overlap) {
  const WholePlan made = overlapped_plan(request, graph, "weft", overlap);
  // Not every combination can run; those that cannot are no candidates.
  if (!find_run_order(made.unfolded()).cycle.empty()) return {};
  const MemoryVerdict memory = judge_memory(made.plan(), request.profile);
  return {true, memory.fits, request.search.step_seconds(made), memory.needed};
}

std::vector<PlanSearcher::Outcome> PlanSearcher::evaluate_all(const PlanRequest& request, const SharedGraph& graph,
                                                              const std::vector<Overlap>& overlaps) {
  std::vector<Outcome> outcomes(overlaps.size());
  parallel_for(overlaps.size(), request.search.jobs,
               [&](std::size_t i) { outcomes[i] = evaluate(request, graph, overlaps[i]); });
  return outcomes;
}

bool PlanSearcher::take_better(const std::vector<Overlap>& tried, Overlap& best, Outcome& of_best) {
  const std::vector<Outcome> found = evaluate_all(request_, graph_, tried);
  bool better = false;
  for (std::size_t i = 0; i < tried.size(); ++i) {
    if (!is_better_result(found[i], of_best)) continue;
    of_best = found[i];
    best = tried[i];
    better = true;
  }
  return better;
}

void PlanSearcher::report() {
  if (request_.search.progress) request_.search.progress(std::min(1.0, spent_ / budget_));
}

// In a step of so many micro-batches, about: of what rows may cut, half of a layer is. Parts of what a step has once,
// gradients and parameters, are as many whatever the micro-batches.
double PlanSearcher::operations_in(const Overlap& overlap, std::int64_t micro_batches) const {
  const double rows = std::max(overlap.partition.forward_rows, overlap.partition.backward_rows);
  double repeated = static_cast<double>(graph_->operations.size()) * (1 + rows) / 2;
  for (const std::int32_t parts : overlap.partition.layers.parts) repeated += parts - 1;
  double once = 0;
  for (const std::int32_t parts : overlap.partition.parts) once += parts - 1;
  return repeated * static_cast<double>(micro_batches) + once;
}

void PlanSearcher::look_at(const std::vector<Decisions>& candidates) {
  std::vector<Decisions> unknown;
  std::vector<Overlap> overlaps;
  for (const Decisions& candidate : candidates) {
    if (known_.contains(candidate) || !has_work_left()) continue;
    Overlap overlap = space_.overlap(candidate);
    // Work counts when it is begun, so that threads do not decide where the budget ends.
    spent_ += operations_in(overlap, small_.graph->micro_batches) + static_cast<double>(overlap.weave.visits) / 10;
    unknown.push_back(candidate);
    overlaps.push_back(std::move(overlap));
  }
  const std::vector<Outcome> outcomes = evaluate_all(small_.request, small_.graph, overlaps);
  for (std::size_t i = 0; i < unknown.size(); ++i) known_[unknown[i]] = outcomes[i];
  report();
}

Decisions PlanSearcher::descend(Decisions from) {
  look_at({from});
  if (!known_.contains(from)) return from;
  for (bool better = true; better && has_work_left();) {
    better = false;
    for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
      if (d == DecisionSpace::kPairs || d == DecisionSpace::kPipeline || d == DecisionSpace::kGaps) continue;
      std::vector<Decisions> candidates;
      for (std::size_t option = 0; option < space_.options(d); ++option) {
        Decisions candidate = from;
        candidate.chosen[d] = option;
        if (candidate != from) candidates.push_back(candidate);
      }
      look_at(candidates);
      for (const Decisions& candidate : candidates) {
        const auto found = known_.find(candidate);
        if (found == known_.end() || !(found->second < known_.at(from))) continue;
        from = candidate;
        better = true;
      }
    }
  }
  return from;
}

// Some dimensions anew: a way out of a point where no single change helps.
Decisions PlanSearcher::perturbed(const Decisions& from, std::uint64_t& random) const {
  Decisions result = from;
  for (int change = 0; change < 3; ++change) {
    const auto d = static_cast<std::size_t>(next_random(random) % space_.drawn_dimensions());
    result.chosen[d] = static_cast<std::size_t>(next_random(random) % space_.options(d));
  }
  return result;
}

std::vector<Decisions> PlanSearcher::with_every_option(const Decisions& of, std::size_t dimension) const {
  std::vector<Decisions> candidates(space_.options(dimension), of);
  for (std::size_t option = 0; option < candidates.size(); ++option) candidates[option].chosen[dimension] = option;
  return candidates;
}

// The pipeline's order decides more than all else, so it comes first, then what fills the gaps of its passes; and the
// whole step is what counts: few micro-batches make much of the ramp.
Decisions PlanSearcher::with_best(std::size_t dimension, const Decisions& start) {
  if (space_.options(dimension) == 1) return start;
  std::vector<Decisions> candidates = with_every_option(start, dimension);
  look_at(candidates);
  std::erase_if(candidates, [&](const Decisions& candidate) { return !known_.contains(candidate); });
  if (candidates.empty()) return start;
  return candidates[index_of_best(of_whole_step(candidates))];
}

// Few micro-batches tell little of pairs, which pay between filling and draining: with and without them are searched
// apart, each with its share of the budget.
Decisions PlanSearcher::descend_by_pairs() {
  std::vector<Decisions> starts(space_.options(DecisionSpace::kPairs), space_.start());
  for (std::size_t pairs = 0; pairs < starts.size(); ++pairs) starts[pairs].chosen[DecisionSpace::kPairs] = pairs;
  limit_ = budget_;
  look_at(starts);  // side by side
  // The layout's own pipeline is searched too: another one may begin better and end worse.
  for (std::size_t pairs = 0, count = starts.size(); pairs < count; ++pairs) {
    const Decisions other = with_best(DecisionSpace::kPipeline, starts[pairs]);
    if (other != starts[pairs]) starts.push_back(other);
  }
  for (Decisions& start : starts) start = with_best(DecisionSpace::kGaps, start);
  const auto count = static_cast<double>(starts.size());
  Decisions best = starts.front();
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const double share = kFirstDescentShare * budget_ * static_cast<double>(i + 1);
    limit_ = starts.size() == 1 ? budget_ : share * (2 / count);
    const Decisions found = descend(starts[i]);
    if (i == 0 || (known_.contains(found) && known_.at(found) < known_.at(best))) best = found;
  }
  limit_ = budget_;
  return best;
}

std::vector<Decisions> PlanSearcher::finalists() const {
  using Known = std::pair<const Decisions, Outcome>;
  using Kind = std::array<std::size_t, 3>;  // with pairs or without, the pipeline, and what fills gaps
  std::map<Kind, std::vector<const Known*>> kinds;
  for (const Known& known : known_) {
    const std::vector<std::size_t>& chosen = known.first.chosen;
    kinds[{chosen[DecisionSpace::kPairs], chosen[DecisionSpace::kPipeline], chosen[DecisionSpace::kGaps]}].push_back(
        &known);
  }
  const std::size_t most = request_.layout.vpp > 1 ? kFinalistsOfChunks : 1;
  std::vector<Decisions> result;
  for (auto& [kind, all] : kinds) {
    const Known* const fastest = *std::ranges::min_element(
        all, [](const Known* a, const Known* b) { return is_better_result(a->second, b->second); });
    const std::size_t count = std::min(most, all.size());
    std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count),
                              [](const Known* a, const Known* b) {
                                if (a->second < b->second) return true;
                                return !(b->second < a->second) && a->first < b->first;
                              });
    all.resize(count);
    if (std::ranges::find(all, fastest) == all.end()) all.push_back(fastest);
    for (const Known* const known : all) result.push_back(known->first);
  }
  return result;
}

PlanSearcher::Found PlanSearcher::best_of(const std::vector<Overlap>& others) {
  // The finalists; pairs, which hardly fold, count twice.
  const std::size_t plans = others.size() + (space_.options(DecisionSpace::kPairs) > 1 ? 3 : 1);
  const double in_full = static_cast<double>(plans * graph_->operations.size()) *
                         static_cast<double>(std::min(graph_->micro_batches, 2 * more_.graph->micro_batches));
  refine_budget_ = kRefineShare * budget_;
  level_budget_ = kLevelShare * budget_;
  if (allows_late_order(request_)) late_budget_ = kLateShare * budget_;
  if (allows_layer_order(request_.layout)) layer_order_budget_ = kLayerOrderShare * budget_;
  budget_ = std::max(kLeastSearchShare * budget_, budget_ - in_full - layer_order_budget_);
  Decisions best = descend_by_pairs();
  std::uint64_t random = request_.search.seed;
  for (int tried = 0, failed = 0; tried < kMaxPerturbations && failed < kMaxFailedPerturbations && has_work_left();
       ++tried) {
    const Decisions other = descend(perturbed(best, random));
    const bool better = known_.contains(other) && known_.at(other) < known_.at(best);
    if (better) best = other;
    failed = better ? 0 : failed + 1;
  }
  if (known_.contains(best)) {  // without a budget nothing is searched
    limit_ = std::numeric_limits<double>::infinity();
    look_at(with_every_option(best, DecisionSpace::kGaps));
  }
  return best_in_full(others);
}

// What was searched in small is compared as the whole step has it, the named policies with it; each decision once. Most
// policies wait for so much on the spot that their least step is longer than the best: these are not even planned. Of
// the rest, only those that come close to a named policy are simulated in full.
PlanSearcher::Found PlanSearcher::best_in_full(const std::vector<Overlap>& others) {
  const std::vector<Decisions> own = finalists();
  std::vector<Outcome> outcomes = of_whole_step(own);
  std::vector<Overlap> overlaps;
  for (const Decisions& decisions : own) overlaps.push_back(space_.overlap(decisions));
  const auto best_found = std::min_element(outcomes.begin(), outcomes.end(), is_better_result);
  const Outcome found = best_found == outcomes.end() ? Outcome{} : *best_found;
  std::vector<Overlap> rest = worth_a_look(others, overlaps, found);
  std::vector<Outcome> of_rest;
  if (extrapolates()) {
    of_rest = extrapolate(rest, evaluate_all(small_.request, small_.graph, rest));
  } else {
    if (found.can_run && found.fits) rest = promising(std::move(rest));
    of_rest = evaluate_all(request_, graph_, rest);
  }
  overlaps.insert(overlaps.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
  outcomes.insert(outcomes.end(), of_rest.begin(), of_rest.end());
  if (extrapolates()) simulate_close_ones(overlaps, own.size(), outcomes);
  if (allows_layer_order(request_.layout)) add_layer_order(overlaps, outcomes);
  if (late_budget_ > 0) add_late(overlaps, outcomes);
  add_refined(overlaps, outcomes);
  add_levels(overlaps, outcomes);
  if (request_.profile.movers == MoverWish::chosen) add_movers(overlaps, outcomes);
  spent_ = budget_;
  report();
  const std::size_t best = index_of_best(outcomes);
  return {std::move(overlaps[best]), outcomes[best]};
}

std::vector<PipelineSchedule> PlanSearcher::promising_named() const {
  const PipelineSchedule by_default = unsearched(request_.layout);
  std::map<PipelineSchedule, std::optional<Outcome>> best_of;
  for (const Decisions& option : with_every_option(space_.start(), DecisionSpace::kPipeline)) {
    const PipelineChoice choice = space_.overlap(option).order.pipeline;
    if (choice.most_held == 0) best_of[choice.named.value_or(by_default)] = {};
  }
  for (const auto& [decisions, outcome] : whole_) {
    const PipelineChoice choice = space_.overlap(decisions).order.pipeline;
    if (choice.most_held > 0) continue;
    std::optional<Outcome>& best = best_of[choice.named.value_or(by_default)];
    if (!best || is_better_result(outcome, *best)) best = outcome;
  }
  Outcome best;
  for (const auto& [named, outcome] : best_of) best = std::min(best, outcome.value_or(Outcome{}), is_better_result);
  std::vector<PipelineSchedule> result;
  for (const auto& [named, outcome] : best_of) {
    if (!outcome || comes_close(*outcome, best)) result.push_back(named);
  }
  return result;
}

// Those of `others` that are not among `known`, once each, and whose least step is below that of `found`.
std::vector<Overlap> PlanSearcher::worth_a_look(const std::vector<Overlap>& others, const std::vector<Overlap>& known,
                                                const Outcome& found) const {
  std::vector<Overlap> rest;
  for (const Overlap& other : others) {
    if (std::find(known.begin(), known.end(), other) != known.end()) continue;
    if (std::find(rest.begin(), rest.end(), other) == rest.end()) rest.push_back(other);
  }
  if (!found.can_run || !found.fits) return rest;
  std::vector<double> least(rest.size(), 0);
  parallel_for(rest.size(), request_.search.jobs,
               [&](std::size_t i) { least[i] = least_step_seconds(request_, graph_, rest[i]); });
  const double limit = extrapolates() ? found.step_s * (1 + kMargin) : found.step_s;
  std::vector<Overlap> result;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (least[i] < limit) result.push_back(std::move(rest[i]));
  }
  return result;
}

// Those of `rest` that come close to the best known with few micro-batches.
std::vector<Overlap> PlanSearcher::promising(std::vector<Overlap> rest) {
  if (known_.empty() || graph_->micro_batches == small_.graph->micro_batches) return rest;
  Outcome best;
  for (const auto& [decisions, outcome] : known_) best = std::min(best, outcome, is_better_result);
  const std::vector<Outcome> small = evaluate_all(small_.request, small_.graph, rest);
  std::vector<Overlap> result;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    if (comes_close(small[i], best)) result.push_back(std::move(rest[i]));
  }
  return result;
}

std::size_t PlanSearcher::index_of_best(const std::vector<Outcome>& outcomes) {
  return std::min_element(outcomes.begin(), outcomes.end(), is_better_result) - outcomes.begin();
}

bool PlanSearcher::extrapolates() const {
  // A schedule that does not take turns, as GPipe's, holds every micro-batch of the step.
  return row_of(request_.layout.schedule).takes_turns &&
         graph_->micro_batches >= kExtrapolateFrom * more_.graph->micro_batches;
}

std::vector<PlanSearcher::Outcome> PlanSearcher::of_whole_step(const std::vector<Decisions>& decisions) {
  std::vector<Decisions> unknown;
  std::vector<Overlap> overlaps;
  std::vector<Outcome> small;
  for (const Decisions& candidate : decisions) {
    if (whole_.contains(candidate)) continue;
    unknown.push_back(candidate);
    overlaps.push_back(space_.overlap(candidate));
    small.push_back(known_.at(candidate));
  }
  const std::vector<Outcome> found = graph_->micro_batches == small_.graph->micro_batches ? small
                                     : extrapolates()                                     ? extrapolate(overlaps, small)
                                                      : evaluate_all(request_, graph_, overlaps);
  for (std::size_t i = 0; i < unknown.size(); ++i) whole_[unknown[i]] = found[i];
  std::vector<Outcome> outcomes;
  for (const Decisions& candidate : decisions) outcomes.push_back(whole_.at(candidate));
  return outcomes;
}

// Between filling and draining a pipeline does the same for every micro-batch: two steps of few of them say what each
// adds. What a rank holds does not depend on how many follow.
std::vector<PlanSearcher::Outcome> PlanSearcher::extrapolate(const std::vector<Overlap>& overlaps,
                                                             const std::vector<Outcome>& small) {
  std::vector<Outcome> outcomes = evaluate_all(more_.request, more_.graph, overlaps);
  const auto few = static_cast<double>(small_.graph->micro_batches),
             more = static_cast<double>(more_.graph->micro_batches);
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].can_run || !small[i].can_run) continue;
    const double each = (outcomes[i].step_s - small[i].step_s) / (more - few);
    outcomes[i].step_s += each * (static_cast<double>(graph_->micro_batches) - more);
  }
  return outcomes;
}

// Extrapolated steps may be a little off: where a named policy comes as close as that to the best, both are simulated.
void PlanSearcher::simulate_close_ones(const std::vector<Overlap>& overlaps, std::size_t own,
                                       std::vector<Outcome>& outcomes) {
  const std::size_t best = index_of_best(outcomes);
  std::vector<std::size_t> close;
  for (std::size_t i = 0; i < overlaps.size(); ++i) {
    const bool near = outcomes[i].can_run && outcomes[i].fits == outcomes[best].fits &&
                      outcomes[i].step_s <= outcomes[best].step_s * (1 + kMargin);
    if (i == best || (i >= own && near)) close.push_back(i);
  }
  const bool may_mislead = row_of(request_.layout.schedule).searched;
  if (close.size() == 1 && !may_mislead) return;
  std::vector<Outcome> in_full(outcomes.size());
  const auto simulate = [&](const std::vector<std::size_t>& chosen) {
    std::vector<Overlap> again;
    for (const std::size_t i : chosen) again.push_back(overlaps[i]);
    const std::vector<Outcome> found = evaluate_all(request_, graph_, again);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      in_full[chosen[i]] = found[i];
      outcomes[chosen[i]] = {};
    }
  };
  simulate(close);
  // An order that is searched for anew with more micro-batches is another one, and so may be its step: whatever still
  // promises more than the best that was simulated is simulated as well, and beside it the best of the named policies.
  for (int round = 0; may_mislead && round < kMostSurprises; ++round) {
    const Outcome& simulated = in_full[index_of_best(in_full)];
    const std::size_t next = index_of_best(outcomes);
    const auto named = static_cast<std::size_t>(
        std::min_element(outcomes.begin() + static_cast<std::ptrdiff_t>(own), outcomes.end(), is_better_result) -
        outcomes.begin());
    if (!is_better_result(outcomes[next], simulated)) break;
    std::vector<std::size_t> chosen{next};
    if (named != next && named < outcomes.size() && is_better_result(outcomes[named], simulated)) {
      chosen.push_back(named);
    }
    simulate(chosen);
  }
  outcomes = std::move(in_full);
}

}  // namespace weft
