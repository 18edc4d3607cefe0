#include "study/plan/plan_study.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "bound/bound.hpp"
#include "cost/cost_model.hpp"
#include "model/counts.hpp"
#include "planner/framework_memory.hpp"
#include "planner/memory_needs.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "timeline/critical_path.hpp"

namespace weft {
namespace {

double peak_tflops(const Device& device, const Layout& layout) {
  if (layout.products == ProductFormat::fp8) return device.matrix_tflops_8;
  if (layout.products == ProductFormat::fp4) return device.matrix_tflops_4;
  return layout.precision == ElementType::fp32 ? device.matrix_tflops_32 : device.matrix_tflops_16;
}

// Peak FLOP/s of all devices together in the format of the layout's products.
double peak_flops(const StepGraph& graph, const Layout& layout) {
  double sum = 0;
  for (const RankClass& c : graph.classes) {
    const double tflops = peak_tflops(c.device, layout);
    sum += 1e12 * tflops * static_cast<double>(c.ranks);
  }
  return sum;
}

void add_memory(PolicyStudy& study, const Profile& profile) {
  std::vector<DetailedMemoryNeed> needs = detailed_memory_needs(study.plan(), profile);
  for (std::size_t c = 0; c < needs.size(); ++c) {
    DetailedMemoryNeed& need = needs[c];
    study.memory_peak = std::max(study.memory_peak, need.needed);
    study.fits = study.fits && need.fits();
    study.memory.push_back(
        {study.plan().graph.classes[c].name, need.needed, need.available, std::move(need.use.terms), need.use.peak});
  }
  if (profile.framework) study.chance_of_fit = chance_of_fit(*profile.framework, fullest_stage(study).share());
}

// What all policies of a study share.
struct Problem {
  SharedGraph graph;
  const Cluster& cluster;
  std::shared_ptr<ProgramCosts> programs;
};

PolicyStudy study_whole(const Inputs& inputs, const Problem& problem, std::shared_ptr<const WholePlan> whole,
                        const Profile& profile) {
  PolicyStudy study;
  study.whole = std::move(whole);
  study.programs = problem.programs;
  study.policy = study.plan().policy;
  study.timeline =
      simulate_plan(*study.whole, CostModel(study.plan().graph, problem.cluster, profile, problem.programs));
  SpanIndex index(study.timeline);
  study.accounting = account(study.timeline, index);
  study.critical = critical_share(study.timeline, index);
  study.step_s = study.timeline.period_ns * 1e-9;
  study.throughput = throughput_of(inputs.model, inputs.layout, problem.graph, study.step_s);
  add_memory(study, profile);
  return study;
}

PolicyStudy study_policy(const Inputs& inputs, const Problem& problem, const std::string& policy,
                         const Profile& profile, const OnProgress& on_progress) {
  PlanRequest request = request_of(inputs, profile, std::thread::hardware_concurrency(), problem.programs);
  std::optional<TaskProgress> search;
  if (searches(policy)) {
    search.emplace(on_progress, policy, 100);
    request.search.progress = [&](double share) { search->reach(share); };
  }
  const Overlap overlap = decide_overlap(request, problem.graph, policy);
  auto whole = std::make_shared<const WholePlan>(make_whole_plan(request, problem.graph, policy, overlap));
  if (const auto violation = verify_plan(*whole, {.check_memory = false})) {
    throw UnsafePlan(
        fmt::format("policy {}: its plan is not safe, which is a fault of Weft: {}", policy, violation->message));
  }
  PolicyStudy study = study_whole(inputs, problem, std::move(whole), profile);
  study.policy = policy;  // as typed
  study.layer_order = overlap.order.by_layers;
  study.pipeline = overlap.order.pipeline;
  return study;
}

using StudyOne = std::function<PolicyStudy(std::size_t, const Problem&)>;

std::string words_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

PlanStudy study_all(const Inputs& inputs, const std::vector<std::string>& names, const Profile& profile,
                    const StudyOne& study_one) {
  const std::size_t count = names.size();
  PlanStudy study;
  study.inputs = inputs;
  study.profile = profile;
  const Cluster cluster(inputs.cluster);
  study.devices = cluster.device_count();
  study.parameters = total_parameters(inputs.model);
  const SharedGraph graph = build_step_graph(inputs.model, cluster, inputs.layout);
  const Problem problem{graph, cluster, shared_program_costs(cluster, profile)};
  // The bound and the policies do not need each other.
  std::vector<PolicyStudy> studied(count);
  std::vector<std::exception_ptr> thrown(count);
  parallel_for(count + 1, std::thread::hardware_concurrency(), [&](std::size_t i) {
    if (i < count) {
      try {
        studied[i] = study_one(i, problem);
      } catch (const std::runtime_error&) {
        thrown[i] = std::current_exception();
      }
      return;
    }
    Profile any_mover = profile;
    // Userbuffers take less from compute than a library does.
    if (inputs.options.tp_comm_overlap) any_mover.movers = MoverWish::chosen;
    const CostModel cost(graph, cluster, std::move(any_mover), problem.programs);
    const StepBound bound = step_bound(graph, cost);
    study.bound_s = bound.seconds;
    study.bound_explanation = bound.explanation;
    study.bound_in_turn_s = step_bound_in_turn(graph, cost, inputs.layout.pp).seconds;
  });
  for (std::size_t i = 0; i < count; ++i) {
    if (!thrown[i]) {
      study.policies.push_back(std::move(studied[i]));
    } else {
      study.failed.push_back({names[i], words_of(thrown[i])});
    }
  }
  if (study.policies.empty()) std::rethrow_exception(thrown.front());
  for (PolicyStudy& policy : study.policies) policy.gap_to_bound_pct = 100 * (policy.step_s / study.bound_s - 1);
  const auto better = [](const PolicyStudy& a, const PolicyStudy& b) {
    return a.fits != b.fits ? a.fits : a.step_s < b.step_s;
  };
  study.best = static_cast<std::size_t>(std::min_element(study.policies.begin(), study.policies.end(), better) -
                                        study.policies.begin());
  return study;
}

// A user who names a program wants it to run. A policy may find the same transfers faster in parts that no program
// fits, which is said; where no policy could have run it, that is an error.
void note_unused_programs(PlanStudy& study) {
  for (const ProgramRef& given : study.inputs.programs) {
    const CollectiveSpec& spec = given->program.spec;
    std::set<std::string> groups;
    bool used = false, fits = false, sizes_are_data = false;
    for (const PolicyStudy& policy : study.policies) {
      const StepGraph& graph = policy.plan().graph;
      for (const Operation& op : graph.operations) {
        if (!op.communication || op.communication->collective != spec.kind) continue;
        const Communication& c = *op.communication;
        used = used || c.program == given;
        const std::int64_t size = graph.classes[op.rank_class].group(c.group).scoped(c.scope, c.levels).view.size;
        if (size > 1) groups.insert(fmt::format("{} of {} ranks", name_of(c.group), size));
        fits = fits || size == spec.ranks;
        sizes_are_data = sizes_are_data || (size == spec.ranks && graph.tokens.routed.uneven);
      }
    }
    if (used) continue;
    const std::string flag = fmt::format("--program {}={}", name_of(spec.kind), given->origin);
    if (sizes_are_data) {
      fail(
          "{}: a program has sizes that are known when the plan is made, and with --expert-exchange uneven only the "
          "gates know them; give --expert-exchange padded",
          flag);
    }
    if (!fits) {
      fail("{}: the program is for {} ranks; {}", flag, spec.ranks,
           groups.empty() ? std::string("no transfer of the plan is such a collective")
                          : fmt::format("the plan has {} in groups {}", name_of(spec.kind), fmt::join(groups, ", ")));
    }
    study.notes.push_back(fmt::format(
        "{}: is not used: every {} of {} ranks is cut into parts by tokens, whose sizes no program has, and "
        "is predicted to be faster so; other policies (--policy serial) use it",
        flag, name_of(spec.kind), spec.ranks));
  }
}

}  // namespace

Profile with_programs(Profile profile, const Inputs& inputs) {
  profile.programs = inputs.programs;
  profile.store = inputs.program_store;
  return profile;
}

PlanRequest request_of(const Inputs& inputs, const Profile& known, std::size_t jobs,
                       std::shared_ptr<ProgramCosts> programs) {
  const Profile profile = with_programs(known, inputs);
  const auto cluster = std::make_shared<const Cluster>(inputs.cluster);
  if (!programs) programs = shared_program_costs(*cluster, profile);
  PlanSearch search;
  search.step_seconds = [cluster, profile, programs](const WholePlan& made) {
    const CostModel cost(made.plan().graph, *cluster, profile, programs);
    return simulated_period_ns(made, cost) * 1e-9;
  };
  search.budget_s = inputs.budget_s;
  search.seed = inputs.search_seed;
  search.jobs = jobs;
  return {inputs.model, inputs.cluster, inputs.layout, profile, inputs.options, std::move(search), std::move(programs)};
}

PlanConditions conditions_of(const PlanStudy& study) {
  return {study.profile, study.inputs.options.tp_comm_overlap, study.inputs.condition_flags, study.inputs.launch_flags};
}

const StageMemory& fullest_stage(const PolicyStudy& study) {
  return *std::max_element(study.memory.begin(), study.memory.end(),
                           [](const StageMemory& a, const StageMemory& b) { return a.share() < b.share(); });
}

CriticalShare critical_share(const Timeline& timeline, SpanIndex& index) {
  CriticalShare share;
  const auto begin = static_cast<double>(timeline.steady_begin.value);
  const double length = timeline.period_ns * timeline.periods;
  double covered = 0;
  const auto cover = [&](const TimelineOperation& op, Nanos first, Nanos last) {
    const double from = std::max(begin, static_cast<double>(first.value));
    const double to = std::min(begin + length, static_cast<double>(last.value));
    if (from >= to) return;
    double& term = op.activity == Activity::compute ? share.compute_s : share.transfer_s[op.traffic];
    term += (to - from) * 1e-9 / timeline.periods;
    covered += to - from;
  };
  for (const CriticalStep& step : critical_path(timeline, index)) {
    const bool outside =
        static_cast<double>(step.end.value) <= begin || static_cast<double>(step.begin.value) >= begin + length;
    Nanos now = step.begin;
    for (std::int32_t i = step.operation; !outside && i < step.operation + step.count; ++i) {
      const TimelineOperation& op = timeline.operations[i];
      const Nanos end = step.count == 1 ? step.end : std::min(step.end, now + op.alone);
      cover(op, now, end);
      now = end;
    }
  }
  share.waiting_s = (length - covered) * 1e-9 / timeline.periods;
  return share;
}

Throughput throughput_of(const Transformer& model, const Layout& l, const StepGraph& graph, double step_s) {
  const Flops useful = model_flops(model, l.seq, l.global_batch);
  const std::vector<bool> recomputed = recomputed_layers(l, model);
  const Flops executed = hardware_flops(model, l.seq, l.global_batch, l.recompute, recomputed);
  const double peak = peak_flops(graph, l);
  const auto rates = [&](double model_flops_of_step, double executed_flops_of_step) {
    return FlopRates{.tflops_per_gpu = model_flops_of_step / step_s / static_cast<double>(l.devices()) * 1e-12,
                     .mfu = model_flops_of_step / step_s / peak,
                     .hfu = executed_flops_of_step / step_s / peak};
  };
  const double masked = masked_flops(model, l.seq, l.global_batch).value;
  const auto whole_layers = static_cast<double>(std::ranges::count(recomputed, true));
  const double passes = 3,
               again = l.recompute == Recompute::selective ? 1 : whole_layers / static_cast<double>(recomputed.size());
  return {.tokens_per_s = static_cast<double>(l.global_batch * l.seq) / step_s,
          .whole = rates(useful.value, executed.value),
          .causal = rates(useful.value - passes * masked, executed.value - (passes + again) * masked)};
}

PlanStudy study_plan(const Inputs& inputs, const std::vector<std::string>& policies, const Profile& known,
                     const OnProgress& on_progress) {
  const Profile profile = with_programs(known, inputs);
  PlanStudy study = study_all(inputs, policies, profile, [&](std::size_t i, const Problem& problem) {
    return study_policy(inputs, problem, policies[i], profile, on_progress);
  });
  note_unused_programs(study);
  return study;
}

PlanStudy study_given_plans(const Inputs& inputs, const std::vector<std::shared_ptr<const WholePlan>>& plans,
                            const Profile& profile) {
  std::vector<std::string> policies;
  for (const auto& plan : plans) policies.push_back(plan->plan().policy);
  return study_all(inputs, policies, profile, [&](std::size_t i, const Problem& problem) {
    return study_whole(inputs, problem, plans[i], profile);
  });
}

}  // namespace weft
