#include "app/plan/plan_json_report.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/version.hpp"
#include "graph/transfer_program.hpp"
#include "io/layout_json.hpp"
#include "model/counts.hpp"
#include "plan/late.hpp"
#include "study/plan/bubble_use.hpp"
#include "study/plan/task_times.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

Json account_json(const RankAccount& a, double hidden) {
  Json json;
  json["compute_s"] = a.compute_s;
  json["slowdown_s"] = a.slowdown_s;
  json["comm_s"] = a.comm_s;
  json["exposed_comm_s"] = a.exposed_s;
  Json kinds;
  for (const TrafficKind kind : {TrafficKind::dp_grad, TrafficKind::param_gather, TrafficKind::tp, TrafficKind::pp,
                                 TrafficKind::cp, TrafficKind::ep, TrafficKind::other}) {
    kinds[std::string(name_of(kind))] = a.exposed_by[kind];
  }
  json["exposed_by_kind"] = kinds;
  json["hidden_pct"] = std::isnan(hidden) ? Json(nullptr) : Json(hidden);
  json["bubble_s"] = a.bubble_s;
  json["idle_s"] = a.idle_s;
  return json;
}

// Every rank of the timeline: a stage for all ranks that do the same, as planned; each rank by itself, as measured.
Json stages_json(const Timeline& timeline, const Accounting& accounting) {
  Json stages = Json::array();
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    const TimelineRank& rank = timeline.ranks[r];
    const RankAccount& own = accounting.ranks[r];
    Json stage{{"stage", rank.name}, {"rank", rank.rank.value}, {"ranks", rank.ranks}, {"step_s", own.step_s}};
    stage.update(account_json(own, hidden_pct(own)));
    stages.push_back(std::move(stage));
  }
  return stages;
}

Json memory_json(const std::vector<StageMemory>& memory) {
  Json stages = Json::array();
  for (const StageMemory& stage : memory) {
    Json terms;
    for (const MemoryTerm& term : stage.terms) terms[term.name] = term.bytes.value;
    stages.push_back({{"stage", stage.name},
                      {"bytes", stage.needed.value},
                      {"device_bytes", stage.available.value},
                      {"terms", terms},
                      {"peak",
                       {{"live_bytes", stage.peak.live.value},
                        {"block", stage.peak.block},
                        {"micro_batch", stage.peak.micro_batch.value},
                        {"in_flight", stage.peak.in_flight}}}});
  }
  return stages;
}

}  // namespace

Json accounting_json(const Timeline& timeline, const Accounting& accounting) {
  Json json{{"step_s", accounting.mean.step_s}};
  json.update(account_json(accounting.mean, hidden_pct(accounting.mean)));
  json["stages"] = stages_json(timeline, accounting);
  return json;
}

Json policy_json(const PlanStudy& study, const PolicyStudy& p) {
  Json json;
  json["step_s"] = p.step_s;
  json.update(account_json(p.accounting.mean, hidden_pct(p.accounting.mean)));
  json["bound_s"] = study.bound_s;
  json["gap_to_bound_pct"] = p.gap_to_bound_pct;
  json["tokens_per_s"] = p.throughput.tokens_per_s;
  for (const auto& [rates, suffix] : {std::pair{&p.throughput.whole, ""}, {&p.throughput.causal, "_causal"}}) {
    json[std::string("tflops_per_gpu") + suffix] = rates->tflops_per_gpu;
    json[std::string("mfu") + suffix] = rates->mfu;
    json[std::string("hfu") + suffix] = rates->hfu;
  }
  if (p.pipeline.named) json["pipeline"] = {{"schedule", name_of(*p.pipeline.named)}};
  if (p.pipeline.most_held > 0) json["pipeline"] = {{"schedule", "searched"}, {"most_held", p.pipeline.most_held}};
  if (p.pipeline.room_percent > 0) json["pipeline"]["room_percent"] = p.pipeline.room_percent;
  if (p.layer_order.layers > 0) {
    json["layer_order"] = {{"layers", p.layer_order.layers},
                           {"micro_batches", p.layer_order.micro_batches},
                           {"abreast", p.layer_order.abreast}};
  }
  if (const LateSummary late = summarize_late(p.whole->plan()); late.operations > 0) {
    json["late"] = {{"operations", late.operations},
                    {"weight_gradients", late.weight_grads},
                    {"of_weight_gradients", late.all_weight_grads},
                    {"held_bytes", late.held.value}};
  }
  if (const std::optional<BubbleUse> use = bubble_use(p)) {
    json["bubble_use"] = {
        {"extra_s", use->extra_s}, {"utilisation_without", use->share_without()}, {"utilisation", use->share()}};
  }
  for (const TaskTime& task : task_times(p)) {
    Json line{{"name", task.name}, {"rank_class", task.rank_class}};
    if (task.micro_batch.valid()) line["micro_batch"] = task.micro_batch.value;
    line["in_bubbles"] = task.in_bubbles;
    if (task.released_s) line["released_s"] = *task.released_s;
    line["start_s"] = task.start_s;
    line["end_s"] = task.end_s;
    if (task.due_s) line["due_s"] = *task.due_s;
    json["tasks"].push_back(std::move(line));
  }
  json["memory_peak_bytes"] = p.memory_peak.value;
  json["fits"] = p.fits;
  json["memory_pct"] = 100 * fullest_stage(p).share();
  if (p.chance_of_fit) json["chance_of_fit"] = *p.chance_of_fit;
  json["tight"] = p.fits && fullest_stage(p).share() > kTightMemory;
  double most_hidden = std::nan("");  // of one rank; fmax skips ranks without communication
  for (const RankAccount& rank : p.accounting.ranks) most_hidden = std::fmax(most_hidden, hidden_pct(rank));
  Json critical{{"compute_s", p.critical.compute_s}, {"waiting_s", p.critical.waiting_s}};
  for (int kind = 0; kind < kTrafficKinds; ++kind) {
    critical["transfer_s"][std::string(name_of(static_cast<TrafficKind>(kind)))] = p.critical.transfer_s[kind];
  }
  json["critical_path"] = critical;
  json["max"] = account_json(p.accounting.max, most_hidden);
  json["stages"] = stages_json(p.timeline, p.accounting);
  json["memory"] = memory_json(p.memory);
  json["collectives"] = Json::object();
  for (const auto& [collective, ways] : programs_in_words(p.plan().graph)) json["collectives"][collective] = ways;
  return json;
}

nlohmann::ordered_json study_json(const PlanStudy& study) {
  Json json;
  json["version"] = kVersion;
  json["model"] = {{"name", study.inputs.model.name},
                   {"parameters", study.parameters},
                   {"active_parameters", active_parameters(study.inputs.model)}};
  json["cluster"] = {{"name", study.inputs.cluster.name},
                     {"devices", study.devices},
                     {"device", study.inputs.cluster.device.name},
                     {"emulated", study.inputs.cluster.execution.links == LinkTiming::paced},
                     {"reserve_bytes", study.inputs.reserve.value}};
  json["layout"] = layout_to_json(study.inputs.layout);
  json["bound_s"] = study.bound_s;
  json["bound_explanation"] = study.bound_explanation;
  if (study.bound_in_turn_s > 0) json["bound_in_turn_s"] = study.bound_in_turn_s;
  for (const FailedPolicy& failed : study.failed) json["failed"][failed.policy] = failed.reason;
  return json;
}

nlohmann::ordered_json plan_json_report(const PlanStudy& study) {
  Json json = study_json(study);
  for (const PolicyStudy& p : study.policies) json["policies"][p.policy] = policy_json(study, p);
  json["best"] = study.policies[study.best].policy;
  if (!study.would_fit.policy.empty()) {
    json["would_fit"] = {{"policy", study.would_fit.policy}, {"layouts", Json::array()}};
    for (const FittingLayout& fitting : study.would_fit.layouts) {
      json["would_fit"]["layouts"].push_back({{"flags", fitting.flags},
                                              {"memory_peak_bytes", fitting.memory.value},
                                              {"step_s", fitting.step_s},
                                              {"layout", layout_to_json(fitting.layout)}});
    }
  }
  return json;
}

void add_ignored_flags(nlohmann::ordered_json& json, const std::vector<IgnoredFlag>& ignored) {
  for (const IgnoredFlag& flag : ignored) {
    json["ignored_flags"].push_back({{"flag", flag.flag}, {"value", flag.value}, {"reason", flag.reason}});
  }
}

}  // namespace weft
