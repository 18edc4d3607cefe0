#include "app/inputs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "app/compression_input.hpp"
#include "app/device_map_input.hpp"
#include "app/files.hpp"
#include "app/megatron_inputs.hpp"
#include "app/network_inputs.hpp"
#include "app/program_inputs.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/presets.hpp"
#include "cluster/validate.hpp"
#include "cost/framework.hpp"
#include "cost/power_cap.hpp"
#include "io/cluster_json.hpp"
#include "io/extra_json.hpp"
#include "io/hf_config.hpp"
#include "io/profile_json.hpp"
#include "io/userbuffer_config.hpp"
#include "model/presets.hpp"
#include "planner/partition/slice_choice.hpp"
#include "planner/policy/megatron_options.hpp"
#include "study/plan/bubble_use.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxNumber = 1'000'000'000;

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

// weft run says it by its optimizer too.
std::int64_t read_kfac_interval(const Flags& flags) {
  const bool has_optimizer = flags.declares("optimizer");
  const bool kfac = has_optimizer && flags.text("optimizer") == "kfac";
  if (has_optimizer && flags.given("kfac-interval") && !kfac) fail("--kfac-interval: is of --optimizer kfac");
  if (flags.text("kfac-interval") == "auto") return 1;
  return flags.integer("kfac-interval", 1, kMaxNumber).value_or(kfac ? 1 : 0);
}

std::vector<std::int64_t> read_stage_layers(const Flags& flags) {
  std::vector<std::int64_t> layers;
  if (const auto text = flags.text("stage-layers")) {
    for (const std::string& part : split(*text, ',')) layers.push_back(parse_integer(part, "--stage-layers"));
  }
  return layers;
}

bool chooses_slices(const Flags& flags) {
  return flags.text("slices") == "auto";
}

// Returns the tokens of each slice: N equal ones, or as listed.
std::vector<std::int64_t> read_slices(const Flags& flags, std::int64_t seq) {
  const auto text = flags.text("slices");
  if (!text || chooses_slices(flags)) return {};
  std::vector<std::int64_t> numbers;
  for (const std::string& part : split(*text, ',')) numbers.push_back(parse_integer(part, "--slices"));
  if (numbers.size() > 1) return numbers;
  const std::int64_t count = numbers.front();
  if (count < 1 || count > seq) fail("--slices {}: is not in 1..{} (--seq)", count, seq);
  if (seq % count != 0) fail("--slices {}: does not divide --seq {}; give the tokens of each slice", count, seq);
  return count == 1 ? std::vector<std::int64_t>{}
                    : std::vector<std::int64_t>(static_cast<std::size_t>(count), seq / count);
}

// All micro-batches of a step are the step; of a single one nothing is added up before it is reduced.
std::int64_t read_reduce_every(const Flags& flags, const Layout& layout) {
  const auto text = flags.text("reduce-every");
  if (!text || *text == "auto") return 0;
  if (*text == "step") return Layout::kWholeStep;
  const std::int64_t every = parse_integer(*text, "--reduce-every");
  if (every < 1) fail("--reduce-every {}: must be step, auto, or a number of micro-batches from 1 on", every);
  const std::int64_t all = layout.global_batch / std::max<std::int64_t>(1, layout.micro_batch * layout.dp);
  if (every != all) return every;
  return all > 1 ? Layout::kWholeStep : 0;
}

std::vector<Axis> read_mesh_order(const Flags& flags) {
  const auto order = flags.text("mesh-order");
  if (!order) return Layout{}.mesh_order;
  try {
    return parse_mesh_order(*order);
  } catch (const Error& error) {
    fail("--mesh-order: {}", error.what());
  }
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

// What training takes where flags are silent.
struct TrainingDefaults {
  ElementType precision;
  bool dropout;  // of a model with learned positions
  bool reserve;  // the device keeps memory for itself
};

TrainingDefaults defaults_of(Runtime runtime) {
  if (runtime == Runtime::cpu) return {ElementType::fp32, false, false};
  if (runtime == Runtime::cuda) return {ElementType::bf16, false, true};
  return {ElementType::bf16, true, true};
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

namespace {

void read_batch(const Flags& flags, Layout& l) {
  l.micro_batch = flags.integer("micro-batch", 1, kMaxNumber).value_or(1);
  l.global_batch = flags.integer("global-batch", 1, kMaxNumber).value_or(l.micro_batch * l.dp);
  if (flags.is_set("round-batch")) {
    const std::int64_t round = l.micro_batch * l.dp;
    l.global_batch = std::max<std::int64_t>(1, l.global_batch / round) * round;
  }
}

}  // namespace

// `ranks`: those that hold the same parameters. 0: no flag says it.
std::int64_t read_zero_shards(const Flags& flags, std::int64_t ranks) {
  const auto shards = flags.integer("zero-shards", 1, kMaxNumber),
             replicas = flags.integer("zero-replicas", 1, kMaxNumber);
  if (shards && replicas) fail("--zero-shards {}: is given with --zero-replicas {}", *shards, *replicas);
  if (!replicas) return shards.value_or(0);
  if (ranks % *replicas != 0) {
    fail("--zero-replicas {}: does not divide --dp * --cp = {} ranks that hold the same parameters", *replicas, ranks);
  }
  return ranks / *replicas;
}

namespace {

// Returns how many ranks of rank 0's data-parallel group, beginning with the first, share the innermost fabric that
// several of them share.
std::int64_t data_ranks_of_a_node(const Cluster& cluster, const Layout& l) {
  const std::vector<Rank> members = group_members(l, {}, GroupKind::dp, Rank{0});
  for (const LevelId fabric : cluster.fabrics()) {
    const std::int64_t domain = cluster.domain_of(fabric, members.front());
    const auto outside = std::ranges::find_if(members, [&](Rank r) { return cluster.domain_of(fabric, r) != domain; });
    if (outside - members.begin() > 1) return outside - members.begin();
  }
  return 1;
}

std::int64_t read_zero_secondary(const Flags& flags, const Cluster& cluster, const Layout& l) {
  const std::optional<std::string> text = flags.text("zero-secondary");
  if (text != "node") return flags.integer("zero-secondary", 1, kMaxNumber).value_or(0);
  if (l.devices() != cluster.device_count()) return 0;  // validate says so
  const std::int64_t ranks = data_ranks_of_a_node(cluster, l);
  if (ranks < 2 || ranks >= l.shards()) {
    fail("--zero-secondary node: {} of the {} ranks that share ZeRO's shards are in a node; give a number", ranks,
         l.shards());
  }
  return ranks;
}

void read_products(const Flags& flags, const Cluster& cluster, Layout& l) {
  l.products = static_cast<ProductFormat>(flags.one_of("products", {"stored", "fp8", "fp4"}).value_or(0));
  l.fp8_param_gather = flags.is_set("fp8-param-gather");
  if (l.products == ProductFormat::stored) return;
  const Device& device = cluster.spec().device;
  if ((l.products == ProductFormat::fp8 ? device.matrix_tflops_8 : device.matrix_tflops_4) == 0) {
    fail("--products {0}: a {1} has no products of {0} operands", name_of(l.products), device.name);
  }
  if (cluster.spec().execution.runtime != Runtime::none) {
    fail("--products {}: is planned for; weft run computes products in its --precision", name_of(l.products));
  }
}

// Returns the model chunks of a pipeline rank where --vpp is not given: those of one wave, or of two.
std::int64_t default_chunks(const ScheduleRow* row) {
  if (row == nullptr || !row->in_waves || row->searched) return 1;
  return row->several_waves ? 4 : 2;
}

}  // namespace

Layout read_layout(const Flags& flags, const Transformer& model, const Cluster& cluster) {
  const TrainingDefaults defaults = defaults_of(cluster.spec().execution.runtime);
  Layout l;
  l.tp = flags.integer("tp", 1, kMaxNumber).value_or(1);
  l.pp = flags.integer("pp", 1, kMaxNumber).value_or(1);
  l.cp = flags.integer("cp", 1, kMaxNumber).value_or(1);
  const auto schedule = flags.one_of("schedule", schedule_names());
  const ScheduleRow* row = schedule ? &row_of(static_cast<PipelineSchedule>(*schedule)) : nullptr;
  l.vpp = flags.integer("vpp", 1, kMaxNumber).value_or(default_chunks(row));
  l.ep = flags.integer("ep", 1, kMaxNumber).value_or(1);
  l.etp = flags.integer("etp", 1, kMaxNumber).value_or(model.experts ? l.tp : 1);
  if (const auto choice = flags.one_of("expert-exchange", {"padded", "uneven", "gathered"})) {
    if (!model.experts) fail("--expert-exchange: {} has no experts; give --experts", model.name);
    l.expert_exchange = static_cast<ExpertExchange>(*choice);
  }
  const std::int64_t devices = cluster.device_count();
  if (const auto dp = flags.integer("dp", 1, kMaxNumber)) {
    l.dp = *dp;
  } else if (l.tp > devices || l.pp > devices || l.cp > devices || devices % (l.tp * l.pp * l.cp) != 0) {
    fail("--tp {} * --pp {} * --cp {}: does not divide the cluster's {} devices", l.tp, l.pp, l.cp, devices);
  } else {
    l.dp = devices / (l.tp * l.pp * l.cp);
  }
  l.dispatch_fp8 = flags.is_set("dispatch-fp8");
  l.ep_forwarding = flags.is_set("ep-forwarding");
  read_batch(flags, l);
  l.seq = flags.integer("seq", 1, kMaxNumber).value_or(model.max_seq);
  l.zero = static_cast<int>(flags.integer("zero", 0, 3).value_or(0));
  l.zero_shards = read_zero_shards(flags, l.dp * l.cp);
  l.layer_group = flags.integer("layer-group", 1, kMaxNumber).value_or(1);
  l.reduce_every = read_reduce_every(flags, l);
  l.slice_tokens = read_slices(flags, l.seq);
  l.warm_up_depth = flags.integer("warm-up-depth", 1, kMaxNumber).value_or(0);
  l.sequence_parallel = flags.is_set("sequence-parallel");
  if (flags.given("dropout") && flags.is_set("no-dropout")) fail("--dropout: is given with --no-dropout");
  if (flags.given("dropout") && model.positions != Positions::learned) {
    fail("--dropout {}: {} trains without; dropout is of models with learned positions", *flags.text("dropout"),
         model.name);
  }
  l.dropout = flags.given("dropout") || (!flags.is_set("no-dropout") && defaults.dropout);
  l.recompute = static_cast<Recompute>(flags.one_of("recompute", {"none", "selective", "full", "local"}).value_or(0));
  if (l.recompute == Recompute::local && !model.experts) {
    fail("--recompute local: {} has no all-to-alls to leave out; give full", model.name);
  }
  if (cluster.spec().execution.runtime != Runtime::none) {
    if (flags.declares("framework") && flags.given("framework")) {
      fail("--framework {}: says whose kernels run a step; on {} they are Weft's own", *flags.text("framework"),
           cluster.spec().name);
    }
    if (flags.declares("cuda-graphs") && flags.given("cuda-graphs")) {
      fail("--cuda-graphs: is planned for; weft run takes --graphs");
    }
    if (flags.declares("power-cap") && flags.given("power-cap")) {
      fail("--power-cap: is planned for; weft run measures its devices as they are");
    }
    if (l.recompute == Recompute::local) fail("--recompute local: is planned for, and not run yet");
    if (l.ep_forwarding) fail("--ep-forwarding: is planned for; in weft run experts exchange directly");
    if (l.expert_exchange == ExpertExchange::gathered) {
      fail("--expert-exchange gathered: is planned for; in weft run experts exchange padded or uneven");
    }
  }
  l.attention = static_cast<AttentionKernel>(flags.one_of("attention", {"flash", "unfused"}).value_or(0));
  using enum ElementType;
  l.precision = flags.element_type("precision", {fp32, bf16, fp16}).value_or(defaults.precision);
  l.grad_dtype = flags.element_type("grad-dtype", {fp32, bf16, fp16}).value_or(fp32);
  const EncodedTensors compression = read_compression(flags);
  l.compress = compression.gradients;
  l.compress_weights = compression.weights;
  read_products(flags, cluster, l);
  l.clip_grad = flags.number("clip-grad", 0, 1e9).value_or(0);
  l.kfac_interval = read_kfac_interval(flags);
  if (const auto extra = flags.text("extra")) read_extra_file(read_text_file(*extra), *extra, l);
  l.schedule = schedule    ? static_cast<PipelineSchedule>(*schedule)
               : l.vpp > 1 ? PipelineSchedule::interleaved
                           : PipelineSchedule::one_f_one_b;
  l.stage_layers = read_stage_layers(flags);
  l.mesh_order = read_mesh_order(flags);
  l.zero_secondary = read_zero_secondary(flags, cluster, l);
  validate(l, model, devices);
  if (flags.text("kfac-interval") == "auto") {
    const Profile profile = flags.declares("profile") ? read_profile(flags) : default_profile();
    l.kfac_interval = kfac_interval_of_bubbles(model, cluster.spec(), l, profile);
  }
  if (chooses_slices(flags)) {
    const Profile profile = flags.declares("profile") ? read_profile(flags) : default_profile();
    l.slice_tokens = choose_slices(model, cluster, l, profile);
  }
  return l;
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

Inputs read_inputs(const Flags& flags, bool searches_devices) {
  if (flags.text("reduce-every") == "auto" && !searches_devices) {
    fail("--reduce-every auto: weft plan decides it; give what it names");
  }
  if (chooses_device_map(flags) && !searches_devices) {
    fail(
        "--device-map auto: only weft plan searches, for one layout; give it the devices that this found, or its plan "
        "file");
  }
  Inputs inputs;
  inputs.model = read_model(flags);
  LimitedCluster limited = read_limited_cluster(flags);
  inputs.cluster = std::move(limited.spec);
  const Cluster cluster(inputs.cluster);
  inputs.layout = read_layout(flags, inputs.model, cluster);
  make_room_for_all(flags, cluster, inputs.model, inputs.layout);
  inputs.remarks = remarks_on_model(flags, inputs.layout, inputs.cluster.execution.runtime);
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
