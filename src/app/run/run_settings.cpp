// Structs are taken apart by structured bindings that name every field: a new field does not compile until somebody has
// decided here whether ranks must agree on it.
#include "app/run/run_settings.hpp"

#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/version.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "exec/checkpoint/run_identity.hpp"
#include "io/cluster_json.hpp"
#include "io/layout_json.hpp"
#include "io/model_json.hpp"
#include "io/profile_json.hpp"
#include "io/program_json.hpp"
#include "io/topology/topology_json.hpp"
#include "study/run/agreed_plans.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDefault = "(default)";

template <class Value>
std::string text_of(const std::optional<Value>& value) {
  return value ? fmt::format("{}", *value) : kDefault;
}

std::string text_of(const UserbufferWish& wish) {
  if (wish.source == UserbufferSource::defaults) return kDefault;
  if (wish.source == UserbufferSource::recipes) return "recipes";
  std::string text;
  for (const UserbufferUse& use : wish.own.uses) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(use.method), use.thread_blocks);
  }
  return text;
}

class Collector {
 public:
  Collector() { declare_run_flags(flags_); }

  template <class Value>
  void add(const std::string& name, const Value& value, const std::string& words = "") {
    settings_.push_back({name, fmt::format("{}", value), words});
  }

  // Fields of a model or layout, named by their flags where they have one.
  void add_fields(const ordered_json& object, const std::string& whose, const std::string& path = "") {
    for (const auto& [key, value] : object.items()) {
      if (value.is_object()) {
        add_fields(value, whose, path + key + " ");
      } else {
        add(name_of_field(path + key, whose), value.is_string() ? value.get<std::string>() : json_text(value));
      }
    }
  }

  AgreedSettings take() { return std::move(settings_); }

 private:
  std::string name_of_field(const std::string& field, const std::string& whose) const {
    static const std::map<std::string, std::string> kFlags = {
        {"experts count", "--experts"},
        {"experts top_k", "--top-k"},
        {"experts capacity_factor", "--capacity-factor"},
        {"experts shared_ffn", "--shared-ffn"},
        {"experts every", "--moe-every"},
        {"experts gate_order", "--token-drop-policy"},
        {"experts aux_loss_coeff", "--aux-loss-coeff"},
        {"experts router_groups", "--router-groups"},
        {"experts router_group_topk", "--router-group-topk"},
    };
    if (const auto found = kFlags.find(field); found != kFlags.end()) return found->second;
    std::string flag = field;
    std::ranges::replace(flag, '_', '-');
    return flags_.declares(flag) ? "--" + flag : fmt::format("the {}'s {}", whose, field);
  }

  Flags flags_{"run", "", ""};
  AgreedSettings settings_;
};

void add_optimizer(const TrainSettings& settings, Collector& to) {
  const auto& [steps, seed, optimizer, adam, sgd, kfac, schedule] = settings;
  to.add("--steps", steps);
  to.add("--seed", seed);
  to.add("--optimizer", name_of(optimizer));
  if (optimizer != Optimizer::sgd) {
    const auto& [learning_rate, beta1, beta2, epsilon, weight_decay] = adam;
    to.add("--lr", learning_rate);
    to.add("--weight-decay", weight_decay);
    to.add("Adam's betas", fmt::format("{}, {}", beta1, beta2));
    to.add("Adam's epsilon", epsilon);
  } else {
    const auto& [learning_rate, momentum, weight_decay] = sgd;
    to.add("--lr", learning_rate);
    to.add("--weight-decay", weight_decay);
    to.add("--momentum", momentum);
  }
  if (optimizer == Optimizer::kfac) {
    const auto& [kfac_rate, kfac_momentum, decay, damping] = kfac;
    to.add("--kfac-lr", kfac_rate);
    to.add("--momentum", kfac_momentum);
    to.add("--kfac-decay", decay);
    to.add("--kfac-damping", damping);
  }
  const auto& [style, warmup, minimum, decay_steps] = schedule;
  to.add("--lr-schedule", name_of(style));
  to.add("--lr-warmup", warmup);
  to.add("--lr-min", minimum);
  to.add("--lr-decay-steps", decay_steps);
}

std::string dropout_in_words(const Transformer& model, const Layout& layout) {
  if (!has_dropout(model, layout)) return "0";
  const auto& [embedding, attention, hidden] = model.dropout;
  if (embedding == attention && attention == hidden) return fmt::format("{}", hidden);
  return fmt::format("{} of embeddings, {} of attention, {} of hidden", embedding, attention, hidden);
}

void add_inputs(const Inputs& inputs, bool links_given, Collector& to) {
  [[maybe_unused]] const auto& [model, cluster, layout, options, budget_s, search_seed, reserve, programs,
                                program_store, remarks, launch_flags, condition_flags] = inputs;
  // Where they are kept may differ; what they are may not.
  std::string carried, origins;
  for (const ProgramRef& program : programs) {
    carried += digest_of(json_text(program_to_json(program->program)));
    origins += fmt::format("{}{}", origins.empty() ? "" : ",", program->origin);
  }
  to.add("--program", carried, programs.empty() ? "(none)" : origins);
  const std::string wiring = cluster.topology ? json_text(topology_to_json(*cluster.topology)) : "";
  to.add("--topology", wiring.empty() ? "" : digest_of(wiring), wiring.empty() ? "(none)" : (*cluster.topology).name);
  ordered_json laid_out = layout_to_json(layout);
  ordered_json shape = model_to_json(model);
  for (ordered_json* json : {&laid_out, &shape}) json->erase("dropout");
  shape.erase("name");  // the same shape may have been given another name
  to.add("--dropout", dropout_in_words(model, layout));
  to.add_fields(laid_out, "layout");
  to.add_fields(shape, "model");
  ordered_json links = cluster_to_json(cluster);
  links.erase("name");
  to.add("--cluster", links_given ? digest_of(json_text(links)) : "", links_given ? cluster.name : "(measured links)");
  to.add("--memory", cluster.device.memory.value, format_bytes(cluster.device.memory));
  to.add("--reserve", reserve.value, format_bytes(reserve));
  const auto& [bucket_parameters, bucket_mib, prefetch, part_mib, tp_comm_overlap, userbuffers, overlap_moe,
               delay_wgrad] = options;
  to.add("--bucket-size", text_of(bucket_parameters));
  to.add("--bucket-mib", text_of(bucket_mib));
  to.add("--prefetch", prefetch);
  to.add("--part-mib", text_of(part_mib));
  to.add("--tp-comm-overlap", tp_comm_overlap);
  to.add("--tp-comm-overlap-cfg", text_of(userbuffers));
  to.add("--overlap-moe-expert-parallel-comm", overlap_moe);
  to.add("--delay-wgrad-compute", delay_wgrad);
  to.add("--budget", budget_s);
  to.add("the search's seed", search_seed);
}

void add_text(const std::string& flag, const Corpus& corpus, const std::string& file, Collector& to) {
  const std::string content = fmt::format("{} bytes, checksum {:08x}", format_count(std::ssize(corpus.bytes())),
                                          checksum_of_text(corpus.bytes()));
  to.add(flag, content, fmt::format("{} ({})", file, content));
}

void add_data(const RunOptions& options, Collector& to) {
  if (options.data) {
    add_text("--data", *options.corpus, *options.data, to);
  } else {
    to.add("--data", "generated text");  // which follows from the seed
  }
  if (!options.validation) return to.add("--eval-every", "never");
  const auto& [job, data, share] = *options.validation;
  const auto& [every, batches, corpus] = job;
  to.add("--eval-every", every);
  to.add("--eval-batches", batches);
  to.add("--eval-share", share);
  if (data) {
    add_text("--eval-data", *corpus, *data, to);
  } else {
    to.add("--eval-data", "the end of --data");
  }
}

void add_profile(const std::optional<Profile>& profile, const std::string& file, Collector& to) {
  if (!profile) return to.add("--profile", "(measured before the run)");
  const std::string digest = digest_of(json_text(profile_to_json(*profile)));
  to.add("--profile", digest, fmt::format("{} (digest {})", file, digest));
}

void add_checkpoint(const std::optional<CheckpointOptions>& options, Collector& to) {
  if (!options) return to.add("--checkpoint", "(none)");
  // The identity is made of what is compared by itself.
  [[maybe_unused]] const auto& [folder, every, keep, resume, stop_on_error, identity, stop_asked] = *options;
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, error);
  to.add("--checkpoint", error ? folder.string() : whole.string(), folder.string());
  to.add("--checkpoint-every", every);
  to.add("--keep-checkpoints", keep);
  to.add("--resume", resume);
  to.add("--on-save-error", stop_on_error ? "stop" : "continue");
}

void add_world(const WorldOptions& world, Collector& to) {
  [[maybe_unused]] const auto& [ranks, cluster, slowdown, communicator, transport, agreed] = world;
  constexpr const char* kTransports[] = {"auto", "mpi", "tcp"};
  to.add("--transport", kTransports[static_cast<std::size_t>(transport)]);
  [[maybe_unused]] const auto& [credit, timeout, silence, check, on_failure, after_failure] = communicator;
  to.add("--check", check);
  to.add("the credit of a queue", credit);
}

}  // namespace

AgreedSettings agreed_run_settings(const RunOptions& options, const WorldOptions& world) {
  [[maybe_unused]] const auto& [inputs, plans, policies, only_best, settings, warm_up, corpus, data, validation,
                                profile, profile_name, calibration_budget, threads, gpu, record, checkpoint, native,
                                links_given, memory_given, lengths, graphs, trials] = options;
  Collector to;
  to.add("Weft", kVersion);
  std::vector<std::string> digests;
  for (const auto& plan : plans) digests.push_back(plan_digest(plan->plan()));
  if (!digests.empty()) to.add("plan files", fmt::format("with digests {}", fmt::join(digests, ", ")));
  add_optimizer(settings, to);
  add_data(options, to);
  to.add("--policy", fmt::format("{}{}", only_best ? "the best of " : "", fmt::join(policies, ",")));
  to.add("--lengths", fmt::format("{}", fmt::join(lengths, ",")), lengths.empty() ? "(none)" : "");
  add_inputs(inputs, links_given, to);
  add_profile(profile, profile_name, to);
  to.add("--calibrate-seconds", static_cast<double>(calibration_budget.count()) * 1e-9);
  to.add("--warm-up", warm_up);
  constexpr const char* kWishes[] = {"auto", "never", "always"};
  to.add("--native", kWishes[static_cast<std::size_t>(native)]);
  to.add("--trials", text_of(trials));
  constexpr const char* kGraphWishes[] = {"auto", "on", "off"};
  to.add("--graphs", kGraphWishes[static_cast<std::size_t>(graphs)]);
  add_checkpoint(checkpoint, to);
  add_world(world, to);
  return to.take();
}

}  // namespace weft
