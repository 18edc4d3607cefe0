#include "app/plan/plan_text_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/table.hpp"
#include "base/text.hpp"
#include "plan/late.hpp"
#include "planner/policy/policy.hpp"
#include "study/plan/bubble_use.hpp"
#include "study/plan/task_times.hpp"

namespace weft {
namespace {

std::string time(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}
std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

// What is said beside a policy's name.
std::string memory_mark(const PolicyStudy& p) {
  if (!p.fits) return " (does not fit)";
  const double share = fullest_stage(p).share();
  return share > kTightMemory ? fmt::format(" ({:.0f} % of memory)", 100 * share) : "";
}

std::string policy_table(const PlanStudy& study, std::size_t columns) {
  TextTable table({"policy", "step", "speed-up", "compute", "slowdown", "exposed", "bubble", "idle", "hidden", "MFU",
                   "HFU", "TFLOP/s/GPU", "over bound"});
  for (const PolicyStudy& p : study.policies) {
    const RankAccount& a = p.accounting.mean;
    const double hidden = hidden_pct(a);
    const double speed_up = study.policies.front().step_s / p.step_s;  // over the first policy named
    table.add_row({p.policy + memory_mark(p), time(p.step_s), fmt::format("{:.3f} x", speed_up), time(a.compute_s),
                   time(a.slowdown_s), time(a.exposed_s), time(a.bubble_s), time(a.idle_s),
                   std::isnan(hidden) ? "-" : fmt::format("{:.1f} %", hidden), percent(p.throughput.whole.mfu),
                   percent(p.throughput.whole.hfu), fmt::format("{:.1f}", p.throughput.whole.tflops_per_gpu),
                   fmt::format("{:+.1f} %", p.gap_to_bound_pct)});
  }
  return table.to_string(columns);
}

std::string throughput_lines(const PolicyStudy& p) {
  const FlopRates& causal = p.throughput.causal;
  return fmt::format(
      "Throughput of {}: {} tokens/s\n"
      "MFU, HFU and TFLOP/s count the whole score matrix of attention, as Megatron does; with its causal half:\n"
      "  MFU {}, HFU {}, {:.1f} TFLOP/s/GPU\n\n",
      p.policy, format_count(static_cast<std::int64_t>(p.throughput.tokens_per_s)), percent(causal.mfu),
      percent(causal.hfu), causal.tflops_per_gpu);
}

// Which traffic the exposed time waits for.
std::string exposed_table(const PlanStudy& study, std::size_t columns) {
  static constexpr std::pair<TrafficKind, const char*> kColumns[] = {{TrafficKind::dp_grad, "DP gradient"},
                                                                     {TrafficKind::param_gather, "param gather"},
                                                                     {TrafficKind::tp, "TP"},
                                                                     {TrafficKind::pp, "PP"},
                                                                     {TrafficKind::cp, "CP"},
                                                                     {TrafficKind::ep, "EP"},
                                                                     {TrafficKind::other, "other"}};
  std::vector<std::string> header{"exposed by kind"};
  for (const auto& [kind, name] : kColumns) header.emplace_back(name);
  TextTable table(header);
  for (const PolicyStudy& p : study.policies) {
    std::vector<std::string> row{p.policy};
    for (const auto& [kind, name] : kColumns) {
      row.push_back(time(p.accounting.mean.exposed_by[kind]));
    }
    table.add_row(row);
  }
  return table.to_string(columns);
}

std::string critical_line(const PolicyStudy& study) {
  std::string text =
      fmt::format("Critical path of {}: compute {}", study.policy, percent(study.critical.compute_s / study.step_s));
  for (int kind = 0; kind < kTrafficKinds; ++kind) {
    const double seconds = study.critical.transfer_s[kind];
    if (seconds > 0.0005 * study.step_s) {
      text += fmt::format(", {} {}", name_of(static_cast<TrafficKind>(kind)), percent(seconds / study.step_s));
    }
  }
  return text + "\n";
}

std::string moment(const MemoryPeak& peak) {
  if (!peak.micro_batch.valid()) return peak.block;
  return fmt::format("{}, micro-batch {} ({} in flight)", peak.block, peak.micro_batch.value, peak.in_flight);
}

std::string memory_table(const PolicyStudy& study, std::size_t columns) {
  TextTable table({"memory of a device", "needs", "of", "used", "weights", "gradients", "optimizer", "activations",
                   "scratch", "fullest in"});
  // Neighbouring stages with the same needs share a row.
  for (std::size_t i = 0; i < study.memory.size();) {
    std::size_t end = i + 1;
    while (end < study.memory.size() && study.memory[end].needed == study.memory[i].needed) ++end;
    const StageMemory& stage = study.memory[i];
    const auto term = [&](std::string_view name) {
      for (const MemoryTerm& t : stage.terms) {
        if (t.name == name) return format_bytes(t.bytes);
      }
      return std::string("0");
    };
    table.add_row({end - i > 1 ? fmt::format("{} .. {}", stage.name, study.memory[end - 1].name) : stage.name,
                   format_bytes(stage.needed), format_bytes(stage.available),
                   percent(stage.share()) + (stage.share() > kTightMemory ? " !" : ""), term("weights"),
                   term("gradients"), term("optimizer state"), term("activations"), term("scratch"),
                   moment(stage.peak)});
    i = end;
  }
  return table.to_string(columns);
}

// What the framework's kernels, collectives and allocator take, for which the table has no columns.
std::string framework_memory_line(const StageMemory& stage) {
  constexpr std::array kColumns{"weights", "gradients", "optimizer state", "activations", "scratch", "other"};
  std::string terms;
  for (const MemoryTerm& term : stage.terms) {
    if (std::find(kColumns.begin(), kColumns.end(), term.name) != kColumns.end()) continue;
    terms += fmt::format("{}{} {}", terms.empty() ? "" : ", ", term.name, format_bytes(term.bytes));
  }
  return terms.empty()
             ? ""
             : fmt::format("Needs of {} include the framework's: {} (docs/frameworks.md).\n", stage.name, terms);
}

// What the second column of the table leaves out, and what its mark means.
std::string memory_notes(const PlanStudy& study, const PolicyStudy& best) {
  std::string text = framework_memory_line(fullest_stage(best));
  const Bytes reserve = study.inputs.reserve;
  if (reserve.value > 0) {
    text += fmt::format("A device ({}) has {}: {} are left to driver, context, NCCL and fragmentation (--reserve).\n",
                        study.inputs.cluster.device.name, format_bytes(study.inputs.cluster.device.memory + reserve),
                        format_bytes(reserve));
  }
  if (best.fits && fullest_stage(best).share() > kTightMemory) {
    text += fmt::format("! Above {:.0f} %: whether it runs is for the allocator's fragmentation to say.\n",
                        100 * kTightMemory);
  }
  constexpr double kSure = 0.98;
  if (best.chance_of_fit && *best.chance_of_fit < kSure && *best.chance_of_fit > 1 - kSure) {
    text += fmt::format(
        "Chance that it fits: {:.0f} %, as runs of the framework needed more or less than predicted "
        "(docs/accuracy.md).\n",
        100 * *best.chance_of_fit);
  }
  return text;
}

}  // namespace

std::string does_not_fit_line(const PolicyStudy& study) {
  const StageMemory* worst = &study.memory.front();
  for (const StageMemory& stage : study.memory) {
    if (stage.needed - stage.available > worst->needed - worst->available) worst = &stage;
  }
  return fmt::format("Does not fit: {} needs {} of {}; largest: {} {}, {} {}.\n", worst->name,
                     format_bytes(worst->needed), format_bytes(worst->available), worst->terms[0].name,
                     format_bytes(worst->terms[0].bytes), worst->terms[1].name, format_bytes(worst->terms[1].bytes));
}

std::string study_heading(const PlanStudy& study, bool links) {
  const Layout& l = study.inputs.layout;
  std::string text =
      fmt::format("{}: {} parameters, on {}: {} x {}{}\n", study.inputs.model.name, format_count(study.parameters),
                  study.inputs.cluster.name, study.devices, study.inputs.cluster.device.name,
                  links && study.inputs.cluster.execution.links == LinkTiming::paced ? " (emulated links)" : "");
  text += fmt::format("tp {}  pp {}  dp {}  cp {}", l.tp, l.pp, l.dp, l.cp);
  if (l.vpp > 1) text += fmt::format("  vpp {}", l.vpp);
  if (study.inputs.model.experts) text += fmt::format("  ep {}  etp {}  edp {}", l.ep, l.etp, l.edp());
  text += fmt::format("  |  {} micro-batches of {}, sequence {}", l.micro_batches(), l.micro_batch, l.seq);
  if (l.layer_group > 1) text += fmt::format(", in layer groups of {}", l.layer_group);
  if (l.reduce_every == Layout::kWholeStep) text += ", gradients reduced once a step";
  if (l.reduce_every == 1) text += ", gradients reduced in every one";
  if (l.reduce_every > 1) text += fmt::format(", gradients reduced every {}", l.reduce_every);
  if (l.warm_up_depth > 0) text += fmt::format(", warm-up {} deep", l.warm_up_depth);
  if (l.has_slices()) text += fmt::format(", in slices of {}", fmt::join(l.slice_tokens, ", "));
  text += fmt::format("  |  zero {}", l.zero);
  if (l.has_shard_groups()) text += fmt::format(" in {} shards", l.shards());
  if (l.zero_secondary > 0) text += fmt::format(" with secondary shards over {}", l.zero_secondary);
  if (l.kfac_interval > 0) text += fmt::format("  K-FAC every {} steps", l.kfac_interval);
  if (l.compress.is_on()) text += fmt::format("  gradients as {}", name_of(l.compress));
  if (l.encodes_weights()) text += fmt::format("  weights as {}", name_of(l.compress_weights));
  text += fmt::format("  {}", name_of(l.precision));
  if (l.products != ProductFormat::stored) text += fmt::format("  products in {}", name_of(l.products));
  text += fmt::format("{}  recompute {}  {}\n", l.sequence_parallel ? "  sequence parallel" : "", recompute_in_words(l),
                      l.pp > 1 ? name_of(l.schedule) : "no pipeline");
  return text;
}

std::string would_fit_text(const FittingLayouts& fitting) {
  if (fitting.policy.empty()) return "";  // nobody looked
  if (fitting.layouts.empty()) {
    return "None of the other tp, pp, ZeRO, sequence parallelism, recomputation and micro-batches that were tried on "
           "this "
           "cluster fits: use more devices.\n";
  }
  std::string text = fmt::format("What would fit, by {}, fastest first\n", fitting.policy);
  TextTable table({"change", "needs", "step"});
  for (const FittingLayout& layout : fitting.layouts) {
    table.add_row({layout.flags, format_bytes(layout.memory), time(layout.step_s)});
  }
  return text + table.to_string();
}

std::string failed_lines(const PlanStudy& study) {
  std::string text;
  for (const FailedPolicy& failed : study.failed)
    text += fmt::format("\nNo plan of {}: {}\n", failed.policy, failed.reason);
  return text;
}

std::string layer_order_line(const PolicyStudy& study) {
  const LayerOrder& order = study.layer_order;
  if (order.layers == 0) return "";
  return fmt::format("Order of {}: {} micro-batches pass {} before the first of them goes on{}\n", study.policy,
                     order.micro_batches, order.layers == 1 ? "a layer" : fmt::format("{} layers", order.layers),
                     order.abreast > 1 ? fmt::format(", {} of them abreast", order.abreast) : "");
}

std::string late_line(const PolicyStudy& study) {
  const LateSummary late = summarize_late(study.whole->plan());
  if (late.operations == 0) return "";
  return fmt::format(
      "Late under {}: {} of {} weight gradients run under the next forward, with what follows them; {} stay in memory "
      "for them\n",
      study.policy, late.weight_grads, late.all_weight_grads, format_bytes(late.held));
}

std::string bubble_use_line(const PolicyStudy& study) {
  const std::optional<BubbleUse> use = bubble_use(study);
  if (!use) return "";
  return fmt::format(
      "Work in bubbles of {}: {} a step of {}; a device computes {} of the step without "
      "them and {} with them\n",
      study.policy, time(use->extra_s), extra_work_in_words(study.plan().layout), percent(use->share_without()),
      percent(use->share()));
}

std::string task_lines(const PolicyStudy& study) {
  std::string text;
  for (const TaskTime& task : task_times(study)) {
    if (task.micro_batch.value > 0) continue;  // --json has all of them
    text += fmt::format("Task '{}' on {}{}: {}runs {} from {} to {} of the step{}\n", task.name, task.rank_class,
                        task.micro_batch.valid() ? ", first micro-batch" : "",
                        task.released_s ? fmt::format("released at {}, ", time(*task.released_s)) : "",
                        task.in_bubbles ? "in bubbles" : "in line", time(task.start_s), time(task.end_s),
                        task.due_s ? fmt::format(", due at {}", time(*task.due_s)) : "");
  }
  return text;
}

std::string pipeline_line(const PolicyStudy& study) {
  const PipelineChoice& choice = study.pipeline;
  if (choice.named) return fmt::format("Pipeline of {}: {}\n", study.policy, name_of(*choice.named));
  if (choice.most_held == 0) return "";
  const std::string room =
      choice.room_percent > 0 ? fmt::format(" and {} % of the memory that it has for them", choice.room_percent) : "";
  return fmt::format("Pipeline of {}: searched, a stage holds at most {} passes{}\n", study.policy, choice.most_held,
                     room);
}

// A policy that does not search has a schedule with a name, and where chunks lie in waves none that Megatron-LM has.
std::string unsearched_line(const PlanStudy& study) {
  const Layout& layout = study.inputs.layout;
  const ScheduleRow& row = row_of(layout.schedule);
  const bool all_search = std::ranges::all_of(study.policies, searches, &PolicyStudy::policy);
  if (layout.pp == 1 || !row.searched || all_search) return "";
  return fmt::format("Pipeline of policies that do not search: {}{}\n", name_of(unsearched(layout)),
                     row.in_waves ? "; Megatron-LM has interleaved, which --schedule interleaved compares with" : "");
}

std::string plan_text_report(const PlanStudy& study, std::size_t columns) {
  const PolicyStudy& best = study.policies[study.best];
  std::string text =
      study_heading(study) + "\n" + policy_table(study, columns) + "\n" + exposed_table(study, columns) + "\n";
  text += fmt::format("Bound: {} (no schedule of this layout is faster)\n  {}\n", time(study.bound_s),
                      study.bound_explanation);
  if (study.bound_in_turn_s > study.bound_s) {
    text += fmt::format("  {} where a micro-batch ends before the next begins\n", time(study.bound_in_turn_s));
  }
  text += layer_order_line(best) + late_line(best) + bubble_use_line(best) + task_lines(best) + pipeline_line(best) +
          unsearched_line(study) + critical_line(best);
  text += throughput_lines(best);
  text += memory_table(best, columns) + memory_notes(study, best);
  if (!best.fits) text += does_not_fit_line(best) + would_fit_text(study.would_fit);
  return text + failed_lines(study);
}

}  // namespace weft
