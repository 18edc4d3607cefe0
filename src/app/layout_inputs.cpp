// From flags to a layout.
#include <algorithm>

#include "app/compression_input.hpp"
#include "app/files.hpp"
#include "app/inputs.hpp"
#include "app/training_defaults.hpp"
#include "base/checked.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "io/extra_json.hpp"
#include "planner/partition/slice_choice.hpp"
#include "study/plan/bubble_use.hpp"

namespace weft {
namespace {

// weft run says it by its optimizer too.
std::int64_t read_kfac_interval(const Flags& flags) {
  const bool has_optimizer = flags.declares("optimizer");
  const bool kfac = has_optimizer && flags.text("optimizer") == "kfac";
  if (has_optimizer && flags.given("kfac-interval") && !kfac) fail("--kfac-interval: is of --optimizer kfac");
  if (flags.text("kfac-interval") == "auto") return 1;
  return flags.integer("kfac-interval", 1, kMaxNumber).value_or(kfac ? 1 : 0);
}

// Returns numbers by model chunk; none where the flag is not given, or a command decides them.
std::vector<std::int64_t> read_layers_of_chunks(const Flags& flags, const std::string& flag) {
  std::vector<std::int64_t> layers;
  const auto text = flags.text(flag);
  if (!text || *text == "auto") return layers;
  if (text->find_first_not_of("-0123456789,") != std::string::npos) {
    fail("--{} {}: is neither auto nor numbers of layers such as 9,9,8,6", flag, *text);
  }
  for (const std::string& part : split(*text, ',')) layers.push_back(parse_integer(part, "--" + flag));
  return layers;
}

// Whoever types that none is recomputed means it, whatever a file says of layers.
void read_recompute_layers(const Flags& flags, Layout& l) {
  const bool whole = recomputes_layers(l.recompute);
  if (!whole && flags.typed("recompute") && !flags.typed("recompute-layers")) return;
  l.recompute_layers = read_layers_of_chunks(flags, "recompute-layers");
  if (!whole && flags.text("recompute-layers") == "auto") {
    fail("--recompute-layers auto: is for --recompute full or local, not {}", name_of(l.recompute));
  }
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

}  // namespace

namespace {

void read_batch(const Flags& flags, Layout& l) {
  l.micro_batch = flags.integer("micro-batch", 1, kMaxNumber).value_or(1);
  const auto global_batch = flags.integer("global-batch", 1, kMaxNumber),
             count = flags.integer("micro-batches", 1, kMaxNumber);
  if (global_batch && count) fail("--micro-batches: is given with --global-batch, which says it too");
  l.global_batch = global_batch.value_or(checked_product({l.micro_batch, l.dp, count.value_or(1)}, "--micro-batches"));
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

// Returns how many ranks of rank 0's data-parallel group, beginning with the first, share the innermost fabric of at
// least a node that several of them share.
std::int64_t data_ranks_of_a_node(const Cluster& cluster, const Layout& l) {
  const std::vector<Rank> members = group_members(l, {}, GroupKind::dp, Rank{0});
  for (std::size_t i = cluster.fabrics_of_parts(); i < cluster.fabrics().size(); ++i) {
    const LevelId fabric = cluster.fabrics()[i];
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
  if (row == nullptr || !row->in_waves) return 1;
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
  const auto etp = flags.integer("etp", 1, kMaxNumber);
  if (etp.value_or(1) > 1 && !model.experts) fail("--etp {}: {} has no experts", *etp, model.name);
  l.etp = etp.value_or(model.experts ? l.tp : 1);
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
  read_recompute_layers(flags, l);
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
  l.schedule = schedule    ? with_placement(static_cast<PipelineSchedule>(*schedule), l.vpp)
               : l.vpp > 1 ? PipelineSchedule::interleaved
                           : PipelineSchedule::one_f_one_b;
  l.stage_layers = read_layers_of_chunks(flags, "stage-layers");
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

}  // namespace weft
