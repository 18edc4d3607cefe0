// Finds what would remove an exposure by trying it: each change that suits the traffic and the reason is planned and
// simulated, and only those that shorten the step are named.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "graph/step_graph.hpp"
#include "planner/memory_needs.hpp"
#include "planner/partition/stage_balance.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/plan_explanation.hpp"
#include "study/plan/recompute_layers_choice.hpp"
#include "timeline/accounting.hpp"

namespace weft {
namespace {

constexpr double kMinGain = 0.001;  // of the step
constexpr std::size_t kMaxRemedies = 4;
constexpr double kNoticeableBubble = 0.02;  // of the step
// The budget of a policy that searches, for each change. A longer search could only make the change better.
constexpr double kSearchSeconds = 1;

std::size_t at(std::int32_t index) {
  return index;
}

struct RemedyChange {
  std::string words;
  Inputs inputs;
  std::string policy;
};

struct RemedyOutcome {
  double step_s = 0;
  bool fits = true;
};

// Returns nothing where the model or the cluster does not allow the change.
std::optional<RemedyOutcome> try_change(const RemedyChange& change, const Profile& profile,
                                        const std::shared_ptr<ProgramCosts>& programs) {
  try {
    const Inputs& in = change.inputs;
    const Cluster cluster(in.cluster);
    PlanRequest request = request_of(in, profile, 1, programs);
    request.search.budget_s = std::min(request.search.budget_s, kSearchSeconds);
    const WholePlan made = make_whole_plan(request, build_step_graph(in.model, cluster, in.layout), change.policy);
    const Plan& plan = made.plan();
    const CostModel cost(plan.graph, cluster, profile, programs);
    RemedyOutcome outcome;
    outcome.step_s = simulate_plan(made, cost, {.names = false}).period_ns * 1e-9;
    outcome.fits = judge_memory(plan, profile).fits;
    return outcome;
  } catch (const Error&) {
    return std::nullopt;
  }
}

class ChangeList {
 public:
  ChangeList(const Inputs& inputs, std::string policy) : inputs_(inputs), policy_(std::move(policy)) {}

  std::vector<RemedyChange> for_exposure(TrafficKind traffic, ExposureReason reason) {
    changes_.clear();
    for (const std::string& name : policy_names()) {
      if (name != policy_) changes_.push_back({"--policy " + name, inputs_, name});
    }
    switch (traffic) {
      case TrafficKind::tp:
        tensor_parallel();
        break;
      case TrafficKind::dp_grad:
      case TrafficKind::other:
        gradients(reason);
        break;
      case TrafficKind::param_gather:
        parameters();
        break;
      case TrafficKind::pp:
        pipeline();
        break;
      case TrafficKind::cp:
        halve_for_data("cp", &Layout::cp);
        break;
      case TrafficKind::ep:
        if (now().ep % 2 == 0) add(fmt::format("--ep {}", now().ep / 2), [](Layout& l) { l.ep /= 2; });
        break;
    }
    const bool per_micro_batch = traffic == TrafficKind::tp || traffic == TrafficKind::pp ||
                                 traffic == TrafficKind::cp || traffic == TrafficKind::ep || now().zero >= 2;
    if (per_micro_batch && reason == ExposureReason::latency && now().layer_groups() % 2 == 0) {
      add(fmt::format("--micro-batch {}", 2 * now().micro_batch), [](Layout& l) { l.micro_batch *= 2; });
    }
    return changes_;
  }

  std::vector<RemedyChange> for_bubble(const Profile& profile) {
    changes_.clear();
    if (now().pp == 1) return {};
    balance_stages(profile);
    const ScheduleRow& row = row_of(now().schedule);
    if (!row.searched && !row.splits_backward && now().directions() == 1) {
      using enum PipelineSchedule;
      if (now().schedule == gpipe) add_schedule(1, one_f_one_b);
      if (now().vpp == 1) add_schedule(1, zb_h1);
      add_schedule(2, zbv);
      if (!row.in_waves) add_schedule(2 * now().vpp, interleaved);
    }
    if (now().micro_batch % 2 == 0) {
      add(fmt::format("--micro-batch {}", now().micro_batch / 2), [](Layout& l) { l.micro_batch /= 2; });
    }
    return changes_;
  }

  // Keeps what has room.
  std::vector<RemedyChange> for_recomputation(const Profile& profile) {
    changes_.clear();
    if (now().recompute == Recompute::none) return {};
    const std::string without = now().recompute_layers.empty() ? "" : " (no --recompute-layers)";
    add("--recompute none" + without, [](Layout& l) {
      l.recompute = Recompute::none;
      l.recompute_layers.clear();
    });
    if (now().recompute == Recompute::selective || now().directions() > 1) return changes_;
    Inputs bare = inputs_;
    bare.layout.recompute_layers.clear();
    const RecomputeLayersChoice choice =
        choose_recompute_layers(bare, profile, searches(policy_) ? "priority" : policy_);
    const Layout fewest = with_chosen(choice, now());
    if (!fewest.recompute_layers.empty()) {
      add(fmt::format("--recompute-layers {}", fmt::join(fewest.recompute_layers, ",")),
          [&](Layout& l) { l.recompute_layers = fewest.recompute_layers; });
    }
    return changes_;
  }

 private:
  const Layout& now() const { return inputs_.layout; }
  template <class Edit>
  void add(const std::string& words, Edit edit) {
    changes_.push_back({words, inputs_, policy_});
    edit(changes_.back().inputs.layout);
  }
  template <class Edit>
  void add_option(const std::string& words, Edit edit) {
    changes_.push_back({words, inputs_, policy_});
    edit(changes_.back().inputs.options);
  }

  void tensor_parallel() {
    if (now().tp > 1 && !now().sequence_parallel) {
      add("--sequence-parallel", [](Layout& l) { l.sequence_parallel = true; });
    }
    if (now().etp == now().tp) halve_for_data("tp", &Layout::tp);
  }
  // Halves one axis and doubles the data parallel ranks.
  void halve_for_data(std::string_view flag, std::int64_t Layout::* axis) {
    if (now().*axis % 2 != 0) return;
    add(fmt::format("--{} {} --dp {}", flag, now().*axis / 2, 2 * now().dp), [&](Layout& l) {
      if (axis == &Layout::tp) l.etp /= 2;
      l.*axis /= 2;
      l.dp *= 2;
      if (l.tp == 1) l.sequence_parallel = false;
    });
  }
  void gradients(ExposureReason reason) {
    if (now().clip_grad > 0) add("no --clip-grad", [](Layout& l) { l.clip_grad = 0; });
    if (now().grad_dtype == ElementType::fp32 && now().precision != ElementType::fp32) {
      add(fmt::format("--grad-dtype {}", name_of(now().precision)), [](Layout& l) { l.grad_dtype = l.precision; });
    }
    if (!now().reduces_once_a_step() && now().micro_batches() > 1 && now().layer_group == 1 &&
        !now().compress.is_on()) {
      add("--reduce-every step", [](Layout& l) { l.reduce_every = Layout::kWholeStep; });
    }
    if (now().zero >= 2) shard_less();
    if (facts_of(policy_).buckets_by_bytes) {
      const double mib = 4 * inputs_.options.bucket_mib.value_or(25);
      add_option(fmt::format("--bucket-mib {:g}", mib), [&](PolicyOptions& o) { o.bucket_mib = mib; });
    }
    if (facts_of(policy_).buckets_by_parameters && reason == ExposureReason::latency) {
      const std::int64_t size =
          4 * inputs_.options.bucket_parameters.value_or(std::max<std::int64_t>(40'000'000, 1'000'000 * now().dp));
      add_option(fmt::format("--bucket-size {}", size), [&](PolicyOptions& o) { o.bucket_parameters = size; });
    }
  }
  void parameters() {
    if (now().clip_grad > 0) add("no --clip-grad", [](Layout& l) { l.clip_grad = 0; });
    if (now().zero < 3) return;
    const int prefetch = inputs_.options.prefetch + 1;
    add_option(fmt::format("--prefetch {}", prefetch), [&](PolicyOptions& o) { o.prefetch = prefetch; });
    shard_less();
  }
  void shard_less() {
    std::string flags = now().layer_group > 1 ? "--zero 1 --layer-group 1" : "--zero 1";
    if (now().zero_secondary > 0) flags += " (no --zero-secondary)";
    if (now().encodes_weights()) flags += " (no --compress weights)";
    add(flags, [](Layout& l) {
      l.zero = 1;
      l.zero_secondary = 0;
      l.compress_weights = CompressionFormat::none;
      l.layer_group = 1;
    });
  }
  void balance_stages(const Profile& profile) {
    if (!now().stage_layers.empty() || now().recompute_layers.size() > 1 || now().directions() > 1) return;
    const Cluster cluster(inputs_.cluster);
    const StepGraph graph = build_step_graph(inputs_.model, cluster, now());
    const std::vector<std::int64_t> layers =
        balanced_layers(stage_problem(graph, CostModel(graph, cluster, profile), now()));
    if (layers == layers_per_chunk(now(), inputs_.model)) return;
    add(fmt::format("--stage-layers {}", fmt::join(layers, ",")), [&](Layout& l) { l.stage_layers = layers; });
  }
  void add_schedule(std::int64_t chunks, PipelineSchedule schedule) {
    const bool other_chunks = chunks != now().vpp;
    std::string words = other_chunks ? fmt::format("--vpp {} ", chunks) : "";
    words += fmt::format("--schedule {}", row_of(schedule).name);
    if (other_chunks && !now().stage_layers.empty()) words += " (no --stage-layers)";
    if (other_chunks && now().recompute_layers.size() > 1) words += " (no --recompute-layers)";
    if (now().warm_up_depth > 0) words += " (no --warm-up-depth)";
    add(words, [&](Layout& l) {
      l.schedule = schedule;
      if (other_chunks) l.stage_layers.clear();
      if (other_chunks && l.recompute_layers.size() > 1) l.recompute_layers.clear();
      l.vpp = chunks;
      l.warm_up_depth = 0;
    });
  }
  void pipeline() { add_schedule(2 * now().vpp, PipelineSchedule::interleaved); }

  const Inputs& inputs_;
  std::string policy_;
  std::vector<RemedyChange> changes_;
};

// The same plan with faster links of one level.
class FasterLinks {
 public:
  FasterLinks(const PolicyStudy& study, const Profile& profile, const std::vector<OperationKind>& kinds)
      : study_(study), profile_(profile), kinds_(kinds) {}

  // Returns the smallest factor that hides nine tenths of the exposure; nothing where no factor does, or where it is
  // not the bytes that take the time.
  std::optional<Remedy> find(const LargestExposure& exposure) const {
    const auto link = slowest_link(exposure.kind);
    if (!link) return std::nullopt;
    if (const auto as_others = as_fast_as_others(*link, exposure.kind)) return as_others;
    const Bandwidth now = study_.plan().graph.links[*link].link.bandwidth;
    const std::string& level = study_.plan().graph.links[*link].name;
    const double enough = 0.1 * exposure.exposed_s;
    constexpr double kFactors[] = {1.25, 1.5, 2, 3, 4, 8};
    // If the largest factor is not enough, none is.
    if (simulate_with(whole_level(*link, *std::rbegin(kFactors)), exposure.kind).second > enough) return std::nullopt;
    for (const double factor : kFactors) {
      const auto [step, exposed] = simulate_with(whole_level(*link, factor), exposure.kind);
      if (exposed > enough) continue;
      return Remedy{fmt::format("{} {:g} times as fast ({:.4g} GB/s a link)", level, factor,
                                factor * now.bytes_per_second * 1e-9),
                    step, study_.fits};
    }
    return std::nullopt;
  }

 private:
  bool is_kind(const Operation& op, std::int32_t kind) const {
    const OperationKind& k = kinds_[at(kind)];
    return op.communication && fmt::format("{} {}", name_of(op.role), name_of(op.phase)) == k.name &&
           name_of(op.communication->group) == k.group && name_of(op.communication->collective) == k.collective;
  }

  // Returns the link of the transfer that takes longest.
  std::optional<std::size_t> slowest_link(std::int32_t kind) const {
    const Cluster cluster(study_.plan().cluster);
    if (cluster.spec().execution.links != LinkTiming::nominal) return std::nullopt;  // whoever runs it sets those
    const CostModel cost(study_.plan().graph, cluster, profile_, study_.programs);
    std::optional<std::size_t> link;
    double longest = 0;
    for (const Operation& op : study_.plan().graph.operations) {
      if (!is_kind(op, kind)) continue;
      for (const LinkWork& work : cost.transfer(op).work) {
        if (work.seconds <= longest) continue;
        longest = work.seconds;
        link = work.resource.index() / 2;
      }
    }
    return link;
  }

  // Where a node's links are slower than the others of their level, the remedy is to make them as fast.
  std::optional<Remedy> as_fast_as_others(std::size_t slow, std::int32_t kind) const {
    std::vector<LinkClass> links = study_.plan().graph.links;
    std::size_t fastest = slow;
    for (std::size_t i = 0; i < links.size(); ++i) {
      const bool same_level = links[i].link.level == links[slow].link.level;
      if (same_level && links[i].link.bandwidth > links[fastest].link.bandwidth) fastest = i;
    }
    if (fastest == slow) return std::nullopt;
    links[slow].link.bandwidth = links[fastest].link.bandwidth;
    links[slow].link.latency = links[fastest].link.latency;
    const double bytes_per_second = links[slow].link.bandwidth.bytes_per_second;
    return Remedy{fmt::format("{} of {} as fast as the others ({:.4g} GB/s a link)", links[fastest].name,
                              owners_of(slow), bytes_per_second * 1e-9),
                  simulate_with(std::move(links), kind).first, study_.fits};
  }

  // Names the rank classes that own the link: "stage 0 on node 3".
  std::string owners_of(std::size_t link) const {
    std::vector<std::string> owners;
    for (const RankClass& c : study_.plan().graph.classes) {
      const bool owns = std::any_of(c.links.begin(), c.links.end(), [&](const LinkUse& use) {
        return static_cast<std::size_t>(use.link_class) == link;
      });
      if (owns) owners.push_back(c.name);
    }
    return fmt::format("{}", fmt::join(owners, " and "));
  }

  std::vector<LinkClass> whole_level(std::size_t link, double factor) const {
    std::vector<LinkClass> links = study_.plan().graph.links;
    const LevelId level = links[link].link.level;
    for (LinkClass& l : links) {
      if (l.link.level == level) l.link.bandwidth.bytes_per_second *= factor;
    }
    return links;
  }

  // Returns the step time and the exposed time of the kind (mean over ranks).
  std::pair<double, double> simulate_with(std::vector<LinkClass> links, std::int32_t kind) const {
    Plan plan = study_.plan();
    plan.graph.links = std::move(links);
    const WholePlan changed(std::move(plan), study_.whole->shared_original());
    const Cluster cluster(changed.plan().cluster);
    const CostModel cost(changed.plan().graph, cluster, profile_, study_.programs);
    const Timeline timeline = simulate_plan(changed, cost, {.names = false});
    SpanIndex index(timeline);
    double exposed = 0, ranks = 0;
    for (const TimelineRank& rank : timeline.ranks) ranks += static_cast<double>(rank.ranks);
    for (const ExposedPart& part : exposed_parts(timeline, index)) {
      const Instance& instance = changed.unfolded().instances()[at(part.transfer.operation)];
      if (!is_kind(changed.plan().graph.op(instance.operation), kind)) continue;
      exposed += static_cast<double>((part.transfer.end - part.transfer.begin).value) * 1e-9 / timeline.periods *
                 static_cast<double>(timeline.ranks[at(part.rank)].ranks) / ranks;
    }
    return {timeline.period_ns * 1e-9, exposed};
  }

  const PolicyStudy& study_;
  const Profile& profile_;
  const std::vector<OperationKind>& kinds_;
};

}  // namespace

void add_remedies(PlanExplanation& explanation, const PlanStudy& study, const PolicyStudy& explained,
                  const Profile& profile) {
  ChangeList list(study.inputs, explained.policy);
  std::vector<std::vector<RemedyChange>> changes;  // by exposure
  std::map<std::string, std::optional<RemedyOutcome>> outcomes;
  std::vector<const RemedyChange*> to_try;
  for (const LargestExposure& exposure : explanation.largest) {
    changes.push_back(list.for_exposure(explanation.kinds[at(exposure.kind)].traffic, exposure.reason));
  }
  const bool has_bubble = explained.accounting.mean.bubble_s >= kNoticeableBubble * explained.step_s;
  changes.push_back(has_bubble ? list.for_bubble(profile) : std::vector<RemedyChange>{});
  changes.push_back(list.for_recomputation(profile));
  for (const PolicyStudy& other : study.policies) {
    outcomes["--policy " + other.policy] = RemedyOutcome{other.step_s, other.fits};
  }
  for (const auto& of_exposure : changes) {
    for (const RemedyChange& change : of_exposure) {
      if (outcomes.try_emplace(change.words).second) to_try.push_back(&change);
    }
  }
  const FasterLinks links(explained, profile, explanation.kinds);
  std::vector<std::optional<RemedyOutcome>> tried(to_try.size());
  std::vector<std::optional<Remedy>> faster(explanation.largest.size());
  parallel_for(tried.size() + faster.size(), std::thread::hardware_concurrency(), [&](std::size_t i) {
    if (i < tried.size()) {
      tried[i] = try_change(*to_try[i], profile, explained.programs);
    } else {
      faster[i - tried.size()] = links.find(explanation.largest[i - tried.size()]);
    }
  });
  for (std::size_t i = 0; i < to_try.size(); ++i) outcomes[to_try[i]->words] = tried[i];
  const auto of_changes = [&](const std::vector<RemedyChange>& of_one) {
    std::vector<Remedy> remedies;
    for (const RemedyChange& change : of_one) {
      const std::optional<RemedyOutcome>& outcome = outcomes.at(change.words);
      const bool helps = outcome && outcome->step_s < (1 - kMinGain) * explained.step_s;
      if (helps && (outcome->fits || !explained.fits)) {
        remedies.push_back({change.words, outcome->step_s, outcome->fits});
      }
    }
    std::stable_sort(remedies.begin(), remedies.end(),
                     [](const Remedy& a, const Remedy& b) { return a.step_s < b.step_s; });
    if (remedies.size() > kMaxRemedies) remedies.resize(kMaxRemedies);
    return remedies;
  };
  for (std::size_t e = 0; e < explanation.largest.size(); ++e) {
    std::vector<Remedy>& remedies = explanation.largest[e].remedies;
    remedies = of_changes(changes[e]);
    if (faster[e] && faster[e]->step_s < (1 - kMinGain) * explained.step_s) remedies.push_back(*faster[e]);
  }
  explanation.against_bubble = of_changes(changes[changes.size() - 2]);
  explanation.against_recomputation = of_changes(changes.back());
}

}  // namespace weft
