#include "app/inputs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "app/device_map_input.hpp"
#include "app/files.hpp"
#include "app/megatron_inputs.hpp"
#include "app/network_inputs.hpp"
#include "app/program_inputs.hpp"
#include "app/training_defaults.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/device_kind.hpp"
#include "cluster/presets.hpp"
#include "cluster/validate.hpp"
#include "cost/framework.hpp"
#include "cost/power_cap.hpp"
#include "io/cluster_json.hpp"
#include "io/hf_config.hpp"
#include "io/plan_json.hpp"
#include "io/profile_json.hpp"
#include "io/userbuffer_config.hpp"
#include "model/presets.hpp"
#include "planner/policy/megatron_options.hpp"

namespace weft {
namespace {

// A GPT from shape flags alone.
Transformer shape_from_flags(const Flags& flags) {
  Transformer model;
  model.name = "gpt";
  for (const char* needed : {"layers", "hidden", "heads"}) {
    if (!flags.given(needed))
      fail("--model: give a preset, a config.json, or --layers, --hidden and --heads (--{} is missing)", needed);
  }
  model.vocab = 51200;
  model.max_seq = 2048;
  return model;
}

void apply_shape_flags(const Flags& flags, Transformer& model) {
  const bool heads_follow = model.kv_heads == model.heads;
  const bool head_dim_follows = model.head_dim == 0 || model.head_dim * model.heads == model.hidden;
  const bool ffn_follows = model.ffn == 0;
  model.layers = flags.integer("layers", 1, kMaxNumber).value_or(model.layers);
  model.hidden = flags.integer("hidden", 1, kMaxNumber).value_or(model.hidden);
  model.heads = flags.integer("heads", 1, kMaxNumber).value_or(model.heads);
  if (heads_follow) model.kv_heads = model.heads;
  model.kv_heads = flags.integer("kv-heads", 1, kMaxNumber).value_or(model.kv_heads);
  if (head_dim_follows && !model.latent) {
    if (model.hidden % model.heads != 0) fail("--heads {}: does not divide --hidden {}", model.heads, model.hidden);
    model.head_dim = model.hidden / model.heads;
  }
  if (ffn_follows) model.ffn = 4 * model.hidden;
  model.ffn = flags.integer("ffn", 1, kMaxNumber).value_or(model.ffn);
  model.vocab = flags.integer("vocab", 1, kMaxNumber).value_or(model.vocab);
  if (const auto tied = flags.one_of("tied", {"false", "true"})) model.tied_embeddings = *tied == 1;
  if (flags.given("dropout") && *flags.text("dropout") != "model") {
    const double rate = *flags.number("dropout", 0, 1);
    model.dropout = {rate, rate, rate};
  }
  if (const auto count = flags.integer("experts", 1, kMaxNumber)) {
    if (!model.experts) model.experts = Experts{.ffn = model.ffn};
    model.experts->count = *count;
    // These are groups of the preset's experts; other numbers of experts need --router-groups.
    if (*count % model.experts->router_groups != 0) model.experts->router_groups = model.experts->router_group_topk = 1;
  }
  if (const auto local = flags.integer("experts-per-rank", 1, kMaxNumber)) {
    if (flags.given("experts")) fail("--experts-per-rank {}: --experts says how many there are already", *local);
    if (!model.experts) model.experts = Experts{.ffn = model.ffn};
    const std::int64_t ranks = flags.integer("ep", 1, kMaxNumber).value_or(1);
    model.experts->count = checked_product({*local, ranks}, "--experts-per-rank * --ep");
  }
  for (const char* name : {"top-k", "capacity-factor", "moe-every", "token-drop-policy", "aux-loss-coeff", "shared-ffn",
                           "router-groups", "router-group-topk"}) {
    if (flags.given(name) && !model.experts) fail("--{}: {} has no experts; give --experts", name, model.name);
  }
  if (const auto top_k = flags.integer("top-k", 1, kMaxNumber)) model.experts->top_k = *top_k;
  if (const auto factor = flags.number("capacity-factor", 0, 1000)) model.experts->capacity_factor = *factor;
  if (const auto ffn = flags.integer("shared-ffn", 0, kMaxNumber)) model.experts->shared_ffn = *ffn;
  if (const auto every = flags.integer("moe-every", 1, kMaxNumber)) model.experts->every = *every;
  if (const auto order = flags.one_of("token-drop-policy", {"position", "gshard", "probs"})) {
    model.experts->gate_order = static_cast<GateOrder>(*order);
  }
  if (const auto groups = flags.integer("router-groups", 1, kMaxNumber)) {
    model.experts->router_groups = model.experts->router_group_topk = *groups;
  }
  if (const auto groups = flags.integer("router-group-topk", 1, kMaxNumber)) model.experts->router_group_topk = *groups;
  if (const auto coeff = flags.number("aux-loss-coeff", 0, 1000)) model.experts->aux_loss_coeff = *coeff;
}

UserbufferWish read_userbuffer_wish(const Flags& flags) {
  const auto wish = flags.text("tp-comm-overlap-cfg");
  if (!wish || *wish == "default") return {};
  if (*wish == "recipes") return {.source = UserbufferSource::recipes};
  return {UserbufferSource::own, read_userbuffer_config(read_text_file(*wish), *wish)};
}

}  // namespace

// (No slash test: "200Gb/s" has one.)
bool names_a_file(const std::string& text) {
  std::error_code ignored;
  return text.ends_with(".json") || std::filesystem::is_regular_file(text, ignored);
}

Transformer read_model(const Flags& flags) {
  const auto name = flags.text("model");
  const std::optional<Transformer> launched = name ? std::nullopt : launch_model(flags);
  Transformer model = launched              ? *launched
                      : !name               ? shape_from_flags(flags)
                      : names_a_file(*name) ? read_hf_config(read_text_file(*name), *name)
                                            : model_preset(*name);
  apply_shape_flags(flags, model);
  // Shape flags make a model of any length; a published one has the positions it was trained with.
  if (!name && !launched) model.max_seq = std::max(model.max_seq, flags.integer("seq", 1, kMaxNumber).value_or(0));
  validate(model);
  return model;
}

Bytes default_reserve(const Device& device) {
  if (device.name == "cpu") return {};
  // Measured on an H200 (docs/accuracy.md): driver 0.6, context and kernels 0.75, NCCL 0.43 GiB.
  constexpr double kFixed = 1.8 * 1024 * 1024 * 1024;
  constexpr double kFragmentation = 0.015;
  constexpr double kMaxShare = 0.25;  // of a device that is far smaller than any GPU in use
  const auto memory = static_cast<double>(device.memory.value);
  return {static_cast<std::int64_t>(std::min(kFixed + kFragmentation * memory, kMaxShare * memory))};
}

namespace {

Bytes gibibytes(double count) {
  return {static_cast<std::int64_t>(count * 1024 * 1024 * 1024)};
}

// What is kept of a device's memory; all of what --memory says is for plans.
Bytes read_reserve(const Flags& flags, const Device& device, bool by_default) {
  const auto given = flags.number("reserve", 0, 1e6);
  if (given && flags.given("memory")) fail("--reserve: --memory says already what plans may use; give one of them");
  if (!given) return flags.given("memory") || !by_default ? Bytes{} : default_reserve(device);
  if (gibibytes(*given) >= device.memory) {
    fail("--reserve {}: leaves nothing of the {} of a {}", *flags.text("reserve"), format_bytes(device.memory),
         device.name);
  }
  return gibibytes(*given);
}

struct LimitedCluster {
  ClusterSpec spec;  // its devices have the memory that plans may use
  Bytes reserve;     // of spec.device
};

LimitedCluster read_limited_cluster(const Flags& flags) {
  const auto text = flags.text("cluster");
  if (!text) fail("--cluster: is missing; give PRESET:NODES such as dgx-a100:8, or a JSON file");
  ClusterSpec spec = names_a_file(*text) ? read_cluster_json(read_text_file(*text), *text) : parse_cluster(*text);
  if (DeviceMap map = read_device_map(flags); !map.empty()) {
    spec.device_map = std::move(map);
    try {
      validate(spec);
    } catch (const Error& error) {
      fail("--device-map: {}", error.what());
    }
  }
  if (SharedTopology topology = read_topology(flags)) spec.topology = std::move(topology);
  const auto cap = flags.number("memory", 0.001, 1e6);
  const auto limit = [&](Device& device) {
    if (cap && gibibytes(*cap) > device.memory) {
      fail("--memory {}: is above the {} of a {}; a larger device is said in --cluster (memory=)",
           *flags.text("memory"), format_bytes(device.memory), device.name);
    }
    const Bytes reserve = read_reserve(flags, device, defaults_of(spec.execution.runtime).reserve);
    device.memory = device.memory - reserve;
    if (cap) device.memory = std::min(device.memory, gibibytes(*cap));
    return reserve;
  };
  const Bytes reserve = limit(spec.device);
  for (NodeOverride& node : spec.overrides) {
    if (node.device) limit(*node.device);
  }
  return {std::move(spec), reserve};
}

}  // namespace

ClusterSpec read_cluster(const Flags& flags) {
  return read_limited_cluster(flags).spec;
}

void make_room_for_all(const Flags& flags, const Cluster& cluster, Transformer& model, Layout& layout) {
  const Runtime runtime = cluster.spec().execution.runtime;
  if (runtime == Runtime::none || !model.experts || model.experts->capacity_factor != 0) return;
  Experts& experts = *model.experts;
  experts.capacity_factor = static_cast<double>(experts.count) / static_cast<double>(experts.top_k);
  if (flags.given("expert-exchange") || layout.experts_gather_tokens() || runtime == Runtime::cuda) return;
  layout.expert_exchange = ExpertExchange::uneven;
}

// What a Hugging Face file says and no plan does. Where plans are executed, one that computes something else is
// refused.
std::vector<std::string> remarks_on_model(const Flags& flags, const Layout& layout, Runtime runtime) {
  const auto file = flags.text("model");
  if (!file || !names_a_file(*file)) return {};
  const HfExtras extras = read_hf_extras(read_text_file(*file), *file);
  std::vector<std::string> remarks;
  if (extras.sliding_window && *extras.sliding_window < layout.seq) {
    const std::string words =
        fmt::format("{}: key 'sliding_window': {} is shorter than --seq {}", *file, *extras.sliding_window, layout.seq);
    if (runtime != Runtime::none)
      fail("{}, and weft run attends to whole sequences; give --seq {}", words, *extras.sliding_window);
    remarks.push_back(words + "; attention is planned over whole sequences, as if there were no window");
  }
  if (!extras.quantization.empty()) {
    remarks.push_back(
        fmt::format("{}: key 'quantization_config' ({}) is of the published weights; training is planned "
                    "in {} (--precision)",
                    *file, extras.quantization, name_of(layout.precision)));
  }
  return remarks;
}

bool leaves_placement_open(const Flags& flags) {
  return flags.text("schedule") == "auto" && flags.integer("vpp", 1, kMaxNumber) == 2;
}

void require_decided(const Flags& flags, Decides decides) {
  if (decides == Decides::everything) return;
  const auto refuse = [&](const char* flag) {
    if (flags.text(flag) == "auto") fail("--{} auto: weft plan decides it, for one layout; give what it names", flag);
  };
  refuse("reduce-every");
  if (decides == Decides::nothing) {
    refuse("stage-layers");
    refuse("recompute-layers");
    if (leaves_placement_open(flags)) {
      fail(
          "--schedule auto: with --vpp 2 weft plan decides where model chunks lie, for one layout; give auto-waves or "
          "auto-loops");
    }
  }
  if (chooses_device_map(flags)) {
    fail(
        "--device-map auto: only weft plan searches, for one layout; give it the devices that this found, or its plan "
        "file");
  }
}

// A device that no profile knows has the efficiencies of none in particular, which hides what makes it differ.
std::vector<std::string> remarks_on_devices(const Flags& flags, const ClusterSpec& cluster) {
  std::vector<std::string> remarks;
  if (cluster.execution.links != LinkTiming::nominal || (flags.declares("profile") && flags.given("profile")))
    return {};
  const std::vector<std::string> known = device_names();
  std::set<std::string> unknown;
  const auto look_at = [&](const Device& device) {
    if (std::ranges::find(known, kind_of_device(device.name)) == known.end()) unknown.insert(device.name);
  };
  look_at(cluster.device);
  for (const NodeOverride& node : cluster.overrides) {
    if (node.device) look_at(*node.device);
  }
  for (const std::string& name : unknown) {
    remarks.push_back(fmt::format(
        "device {}: is planned with efficiencies of no device in particular; say in the cluster's file which "
        "one it is like ({{\"like\": \"h100\"}}), or give a --profile",
        name));
  }
  return remarks;
}

// Returns the flags whose values decide what a plan's time is, beside model, cluster and layout.
std::string condition_flags(const Flags& flags) {
  std::vector<std::string> given;
  for (const char* name : {"framework", "profile", "cuda-graphs", "links", "nccl", "movers", "power-cap"}) {
    if (flags.declares(name) && flags.given(name)) given.push_back(fmt::format("--{} {}", name, *flags.text(name)));
  }
  if (flags.declares("tp-comm-overlap") && flags.is_set("tp-comm-overlap")) given.emplace_back("--tp-comm-overlap");
  return fmt::format("{}", fmt::join(given, " "));
}

Inputs read_inputs(const Flags& flags, Decides decides) {
  require_decided(flags, decides);
  Inputs inputs;
  inputs.model = read_model(flags);
  LimitedCluster limited = read_limited_cluster(flags);
  inputs.cluster = std::move(limited.spec);
  const Cluster cluster(inputs.cluster);
  inputs.layout = read_layout(flags, inputs.model, cluster);
  make_room_for_all(flags, cluster, inputs.model, inputs.layout);
  inputs.remarks = remarks_on_model(flags, inputs.layout, inputs.cluster.execution.runtime);
  for (std::string& remark : remarks_on_devices(flags, inputs.cluster)) inputs.remarks.push_back(std::move(remark));
  inputs.options = read_policy_options(flags);
  require_applicable(inputs.options, inputs.layout);
  if (inputs.options.overlap_moe_expert_parallel_comm && inputs.layout.micro_batches() == 1) {
    inputs.remarks.emplace_back(
        "--overlap-moe-expert-parallel-comm: has no effect with one micro-batch; give a larger --global-batch");
  }
  inputs.budget_s = read_budget(flags);
  inputs.programs = read_programs(flags);
  inputs.program_store = read_program_store(flags, inputs.cluster);
  inputs.reserve = limited.reserve;
  inputs.condition_flags = condition_flags(flags);
  return inputs;
}

PolicyOptions read_policy_options(const Flags& flags) {
  PolicyOptions options;
  options.bucket_parameters = flags.integer("bucket-size", 1, std::int64_t{1} << 50);
  options.bucket_mib = flags.number("bucket-mib", 0, 1 << 30);
  options.part_mib = flags.number("part-mib", 1e-6, 1 << 30);
  options.tp_comm_overlap = flags.is_set("tp-comm-overlap");
  if (flags.given("tp-comm-overlap-cfg") && !options.tp_comm_overlap) {
    fail("--tp-comm-overlap-cfg: says how --tp-comm-overlap moves bytes, which is not given");
  }
  options.userbuffers = read_userbuffer_wish(flags);
  options.overlap_moe_expert_parallel_comm = flags.is_set("overlap-moe-expert-parallel-comm");
  options.delay_wgrad_compute = flags.is_set("delay-wgrad-compute");
  options.prefetch = static_cast<int>(flags.integer("prefetch", 0, 1000).value_or(options.prefetch));
  return options;
}

double read_budget(const Flags& flags) {
  return flags.number("budget", 0, 1e6).value_or(PlanSearch{}.budget_s);
}

Profile read_profile_of_plan(const Flags& flags, const SavedPlan& saved) {
  Profile profile = saved.conditions ? saved.conditions->profile : default_profile();
  if (const auto file = flags.text("profile")) profile = read_profile(read_text_file(*file), *file, std::move(profile));
  profile.programs = carried_programs_of(saved.plan);
  return profile;
}

Profile read_profile(const Flags& flags) {
  const auto file = flags.text("profile");
  const auto framework = flags.declares("framework") ? flags.text("framework") : std::nullopt;
  Profile base = framework ? with_framework(default_profile(), framework_named(*framework)) : default_profile();
  Profile profile = file ? read_profile(read_text_file(*file), *file, std::move(base)) : std::move(base);
  if (flags.declares("links")) apply_network(flags, profile);
  if (flags.declares("power-cap")) {
    constexpr double kMaxWatts = 10'000;
    const auto watts = flags.number("power-cap", 1, kMaxWatts);
    if (watts) profile = with_power_cap(std::move(profile), read_limited_cluster(flags).spec, *watts);
  }
  const auto graphs =
      flags.declares("cuda-graphs") ? flags.one_of("cuda-graphs", {"none", "layer", "full"}) : std::nullopt;
  return graphs ? with_cuda_graphs(std::move(profile), static_cast<CudaGraphs>(*graphs)) : profile;
}

}  // namespace weft
