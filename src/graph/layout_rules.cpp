// Which layouts there are: every number of one is checked here, or where the one who needs it says what it allows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>

#include "base/checked.hpp"
#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "graph/compression_rules.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {
namespace {

// Plans list every issue slot of the pipeline; published steps have at most a few thousand micro-batches.
constexpr std::int64_t kMaxMicroBatches = 65'536;

void require_positive(std::string_view flag, std::int64_t value) {
  if (value < 1) fail("{} {}: must be at least 1", flag, value);
  if (value > 1'000'000'000) fail("{} {}: must be at most 1000000000", flag, value);
}

void require_divides(std::string_view flag, std::int64_t divisor, std::string_view what, std::int64_t value) {
  if (value % divisor != 0) fail("{} {}: does not divide {} {}", flag, divisor, what, value);
}

void validate_degrees(const Layout& l, std::int64_t devices) {
  require_positive("--tp", l.tp);
  require_positive("--pp", l.pp);
  require_positive("--dp", l.dp);
  require_positive("--cp", l.cp);
  require_positive("--vpp", l.vpp);
  require_positive("--ep", l.ep);
  require_positive("--etp", l.etp);
  const std::int64_t product = checked_product(
      {l.tp, l.pp, l.dp, l.cp}, fmt::format("--pp {} * --dp {} * --cp {} * --tp {}", l.pp, l.dp, l.cp, l.tp));
  if (product != devices) {
    fail("--pp {} * --dp {} * --cp {} * --tp {} = {} ranks, but the cluster has {} devices", l.pp, l.dp, l.cp, l.tp,
         product, devices);
  }
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::dp, Axis::pp}) {
    if (l.mesh_order.size() != 4 || std::count(l.mesh_order.begin(), l.mesh_order.end(), axis) != 1) {
      fail("--mesh-order: must name each of tp, cp, dp, pp once ({} is not, or there are {} axes instead of 4)",
           name_of(axis), l.mesh_order.size());
    }
  }
}

void validate_numbers(const Layout& l) {
  if (l.zero < 0 || l.zero > 3) fail("--zero {}: is not in 0..3", l.zero);
  if (!std::isfinite(l.clip_grad) || l.clip_grad < 0) {
    fail("--clip-grad {}: must be 0 (off) or a finite number above", l.clip_grad);
  }
  if (l.precision == ElementType::fp8) fail("--precision fp8: must be fp32, bf16 or fp16");
  if (l.grad_dtype == ElementType::fp8) fail("--grad-dtype fp8: must be fp32, bf16 or fp16");
  if (l.products != ProductFormat::stored && l.precision == ElementType::fp32) {
    fail("--products {}: needs --precision bf16 or fp16, not fp32", name_of(l.products));
  }
  if (l.fp8_param_gather && l.products != ProductFormat::fp8) fail("--fp8-param-gather: needs --products fp8");
  if (l.fp8_param_gather && l.zero != 1) fail("--fp8-param-gather: is for --zero 1, not {}", l.zero);
}

void validate_shards(const Layout& l, const Transformer& model) {
  if (l.zero_shards == 0) return;
  require_positive("--zero-shards", l.zero_shards);
  if (l.zero == 0) fail("--zero-shards {}: needs --zero above 0", l.zero_shards);
  if ((l.dp * l.cp) % l.zero_shards != 0) {
    fail("--zero-shards {}: does not divide --dp {} * --cp {} = {} ranks that hold the same parameters", l.zero_shards,
         l.dp, l.cp, l.dp * l.cp);
  }
  if (model.experts) {
    fail("--zero-shards {}: is for models without experts, and {} has {}", l.zero_shards, model.name,
         model.experts->count);
  }
}

void validate_secondary_shards(const Layout& l, const Transformer& model) {
  if (l.zero_secondary == 0) return;
  require_positive("--zero-secondary", l.zero_secondary);
  if (l.zero != 3) fail("--zero-secondary {}: needs --zero 3, not {}", l.zero_secondary, l.zero);
  if (l.zero_secondary < 2 || l.zero_secondary >= l.shards() || l.shards() % l.zero_secondary != 0) {
    fail("--zero-secondary {}: must be a divisor of the {} ranks that share ZeRO's shards, other than 1 and {}",
         l.zero_secondary, l.shards(), l.shards());
  }
  if (l.pp > 1) {
    fail("--zero-secondary {}: is for --pp 1; every micro-batch in flight would hold a copy", l.zero_secondary);
  }
  if (model.experts) {
    fail("--zero-secondary {}: is for models without experts, and {} has {}", l.zero_secondary, model.name,
         model.experts->count);
  }
}

void validate_layer_group(const Layout& l, const Transformer& model) {
  require_positive("--layer-group", l.layer_group);
  if (l.layer_group == 1) return;
  if (l.zero < 2) {
    fail("--layer-group {}: needs --zero 2 or 3; at --zero {} the order of micro-batches is the policy's choice",
         l.layer_group, l.zero);
  }
  if (l.pp > 1)
    fail("--layer-group {}: is for --pp 1; --schedule breadth-first does it with model chunks", l.layer_group);
  if (model.experts) {
    fail("--layer-group {}: is for models without experts, and {} has {}", l.layer_group, model.name,
         model.experts->count);
  }
  if (l.micro_batches() % l.layer_group != 0) {
    fail("--layer-group {}: does not divide the {} micro-batches of a step", l.layer_group, l.micro_batches());
  }
}

void validate_reduce_every(const Layout& l, const Transformer& model) {
  if (l.reduce_every == 0) return;
  const std::string every = reduce_every_in_words(l);
  if (l.reduce_every != Layout::kWholeStep) require_positive("--reduce-every", l.reduce_every);
  if (l.compress.is_on()) fail("--reduce-every {}: is not for compressed gradients (--compress gradients=...)", every);
  if (l.kfac_interval > 0) fail("--reduce-every {}: is not for K-FAC (--kfac-interval)", every);
  if (l.has_slices()) fail("--reduce-every {}: is not for --slices", every);
  if (l.layer_group > 1) {
    fail("--reduce-every {}: is not for --layer-group {}, which reduces once for each group", every, l.layer_group);
  }
  if (l.reduction_group() == 1) return;
  if (l.micro_batches() % l.reduce_every != 0) {
    fail("--reduce-every {}: does not divide the {} micro-batches of a step", every, l.micro_batches());
  }
  if (l.pp > 1) fail("--reduce-every {}: with --pp {} must be 1 or step", every, l.pp);
  if (model.experts) {
    fail("--reduce-every {}: must be 1 or step for models with experts, and {} has {}", every, model.name,
         model.experts->count);
  }
  if (l.zero_secondary > 0) fail("--reduce-every {}: with --zero-secondary must be 1 or step", every);
}

void validate_batches(const Layout& l, const Transformer& model) {
  require_positive("--micro-batch", l.micro_batch);
  require_positive("--global-batch", l.global_batch);
  require_positive("--seq", l.seq);
  const std::int64_t per_round = checked_product({l.micro_batch, l.dp}, "--micro-batch * --dp");
  if (l.global_batch % per_round != 0) {
    fail("--global-batch {}: is not divisible by --micro-batch {} * --dp {}", l.global_batch, l.micro_batch, l.dp);
  }
  if (l.micro_batches() > kMaxMicroBatches) {
    fail("--global-batch {}: makes {} micro-batches a step; at most {} are planned", l.global_batch, l.micro_batches(),
         kMaxMicroBatches);
  }
  // Each layer pass is some twenty operations of a plan, and plan files have a limit (io/plan_json_limits.hpp).
  constexpr std::int64_t kMaxLayerPasses = 1'000'000;
  if (l.micro_batches() > kMaxLayerPasses / model.layers) {
    fail("--global-batch {}: makes {} micro-batches through {} layers a step; at most {} micro-batches are planned",
         l.global_batch, l.micro_batches(), model.layers, kMaxLayerPasses / model.layers);
  }
  require_divides("--cp", l.cp, "--seq", l.seq);
  if (model.positions == Positions::learned && l.seq > model.max_seq) {
    fail("--seq {}: {} has learned positions for {} tokens only", l.seq, model.name, model.max_seq);
  }
  if (l.sequence_parallel) require_divides("--tp", l.tp, "tokens of a rank (--sequence-parallel)", l.seq / l.cp);
}

// The gate of a slice goes on where that of the slice before it ended, so that experts drop what they would drop of
// whole sequences. Other orders of tokens need those of later slices, unless experts have room for all.
void validate_experts_of_slices(const Layout& l, const Transformer& model) {
  if (!model.experts || gives_slots_in_token_order(*model.experts)) return;
  const Experts& experts = *model.experts;
  const bool has_room_for_all = routed_slots(model, l).capacity >= l.tokens() / token_rows(l).shards;
  if (experts.capacity_factor == 0 || has_room_for_all) return;
  fail(
      "--slices: --token-drop-policy {} gives slots by all tokens of a sequence, and with --capacity-factor {:g} there "
      "may be too few; give --token-drop-policy position, or --capacity-factor 0",
      experts.gate_order == GateOrder::gshard ? "gshard" : "probs", experts.capacity_factor);
}

void validate_slices(const Layout& l, const Transformer& model) {
  if (!l.has_slices()) return;
  const std::int64_t count = l.slices();
  if (count == 1) fail("--slices: 1 slice is given; 2 or more are slices");
  if (count > kMaxMicroBatches / l.micro_batches()) {
    fail("--slices: {} slices of {} micro-batches a step; at most {} passes are planned", count, l.micro_batches(),
         kMaxMicroBatches);
  }
  std::int64_t sum = 0;
  for (const std::int64_t tokens : l.slice_tokens) {
    if (tokens < 1 || tokens > l.seq) fail("--slices: {} tokens are not in 1..{}", tokens, l.seq);
    if (tokens % l.cp != 0) fail("--slices: a slice of {} tokens is not divisible by --cp {}", tokens, l.cp);
    if (l.sequence_parallel && tokens / l.cp % l.tp != 0) {
      fail("--slices: a slice of {} tokens is not divisible by --cp {} * --tp {} (--sequence-parallel)", tokens, l.cp,
           l.tp);
    }
    sum += tokens;
  }
  if (sum != l.seq) fail("--slices: sums to {} tokens, but --seq is {}", sum, l.seq);
  if (l.pp < 2) fail("--slices: needs --pp above 1");
  if (!row_of(l.schedule).takes_slices) {
    fail("--slices: is for --schedule gpipe, 1f1b, zb-h1, zb-h2 and auto, not {}", name_of(l.schedule));
  }
  if (l.vpp > 1) fail("--slices: is for --vpp 1, not {}", l.vpp);
  if (l.micro_batch > 1)
    fail("--slices: needs --micro-batch 1, not {}: smaller micro-batches come first", l.micro_batch);
  if (l.zero > 2) fail("--slices: is for --zero 0, 1 and 2, not {}", l.zero);
  if (l.zero == 2 && l.compress.is_on()) fail("--slices: with --zero 2 is not for --compress {}", name_of(l.compress));
  validate_experts_of_slices(l, model);
}

void validate_warm_up(const Layout& l) {
  if (l.warm_up_depth == 0) return;
  require_positive("--warm-up-depth", l.warm_up_depth);
  if (l.schedule != PipelineSchedule::one_f_one_b) {
    fail("--warm-up-depth {}: is for --schedule 1f1b, not {}", l.warm_up_depth, name_of(l.schedule));
  }
  if (l.pp < 2) fail("--warm-up-depth {}: needs --pp above 1", l.warm_up_depth);
  if (l.has_slices()) fail("--warm-up-depth {}: is not for --slices", l.warm_up_depth);
  if (l.warm_up_depth > l.micro_batches()) {
    fail("--warm-up-depth {}: is not in 1..{}, the micro-batches of a step", l.warm_up_depth, l.micro_batches());
  }
}

// Weight gradients of ZeRO 2 and 3 are freed by transfers of every micro-batch, and those of experts read slots that
// the next gate writes anew: they have no time to wait in.
void validate_work_that_waits(const Layout& l, const Transformer& model) {
  if (l.may_wait.empty()) return;
  const auto first = name_of(l.may_wait.front());
  if (l.zero > 1) fail("--extra: may_wait '{}': is for --zero 0 and 1, not {}", first, l.zero);
  if (model.experts) {
    fail("--extra: may_wait '{}': is for models without experts, and {} has {}", first, model.name,
         model.experts->count);
  }
}

// Moments are checked when the graph is built, which knows its operations.
void validate_tasks(const Layout& l, const Transformer& model) {
  validate_work_that_waits(l, model);
  if (l.tasks.empty() && l.may_wait.empty()) return;
  if (l.layer_group > 1) fail("--extra: is not for --layer-group {}", l.layer_group);
  if (l.has_slices()) fail("--extra: is not for --slices");
  std::set<std::string> names;
  for (const ExtraTask& task : l.tasks) {
    if (task.name.empty()) fail("--extra: a task has no name");
    if (!names.insert(task.name).second) fail("--extra: two tasks have the name '{}'", task.name);
    if (task.stage < 0 || task.stage >= l.pp) {
      fail("--extra: task '{}': stage {} is not in 0..{}", task.name, task.stage, l.pp - 1);
    }
    const bool has_norm = !task.norm_of.empty();
    if (has_norm == (task.duration.value > 0)) {
      fail("--extra: task '{}': needs either a duration above 0 or the weights whose norm it computes", task.name);
    }
    if (has_norm && task.per_micro_batch) {
      fail("--extra: task '{}': weights change once a step, so their norm is computed once a step", task.name);
    }
    if (has_norm && l.zero > 1) {
      fail("--extra: task '{}': norms of weights are for --zero 0 and 1, not {}", task.name, l.zero);
    }
    if (task.per_micro_batch && task.release.empty() && task.deadline.empty()) {
      fail("--extra: task '{}': runs in every micro-batch and needs a release or a deadline there", task.name);
    }
    if (task.deadline_steps < 0 || task.deadline_steps > 1 || (task.per_micro_batch && task.deadline_steps != 0)) {
      fail("--extra: task '{}': the deadline is {} steps on; allowed are 0 and, for what runs once a step, 1",
           task.name, task.deadline_steps);
    }
  }
}

void validate_kfac(const Layout& l, const Transformer& model) {
  if (l.kfac_interval == 0) return;
  require_positive("--kfac-interval", l.kfac_interval);
  const auto refuse = [](const char* flag, std::int64_t value) {
    fail("--optimizer kfac: is not for {} {}; K-FAC's factors are of whole linear layers and their gradients", flag,
         value);
  };
  // A tensor-parallel rank has factors of its own part of a layer. A layer that several ranks hold whole, or in copies,
  // would need one set of factors for all of them.
  if (l.tp > 1 && model.latent)
    fail("--optimizer kfac: with --tp {} is not for {}'s latent attention", l.tp, model.name);
  if (l.tp > model.kv_heads) {
    fail("--optimizer kfac: --tp {} is more than {}'s {} key/value heads, which ranks would have copies of", l.tp,
         model.name, model.kv_heads);
  }
  if (l.cp > 1) refuse("--cp", l.cp);
  if (l.zero > 2) refuse("--zero", l.zero);
  if (l.zero_shards > 0) refuse("--zero-shards", l.zero_shards);
  if (l.layer_group > 1) refuse("--layer-group", l.layer_group);
  if (l.has_slices()) refuse("--slices", l.slices());
  if (model.experts)
    fail("--optimizer kfac: is for models without experts, and {} has {}", model.name, model.experts->count);
  if (l.compress.is_on()) fail("--optimizer kfac: is not for --compress gradients={}", name_of(l.compress.format));
}

void validate_tensor_parallel(const Layout& l, const Transformer& model) {
  if (model.heads % l.tp != 0) fail("--tp {}: does not divide {}'s {} attention heads", l.tp, model.name, model.heads);
  if (model.kv_heads % l.tp != 0 && l.tp % model.kv_heads != 0) {
    fail("--tp {}: neither divides nor is a multiple of {}'s {} key/value heads", l.tp, model.name, model.kv_heads);
  }
  require_divides("--tp", l.tp, "the feed-forward size", model.ffn);
  if (l.sequence_parallel && l.tp == 1) fail("--sequence-parallel: needs --tp above 1");
}

void validate_directions(const Layout& l, const Transformer& model) {
  if (l.directions() == 1) return;
  const std::string_view name = name_of(l.schedule);
  if (l.pp % 2 != 0) fail("--schedule {}: every stage has a mirror image, so --pp is even, not {}", name, l.pp);
  if (l.micro_batches() % 2 != 0) {
    fail("--schedule {}: half of the micro-batches enter at each end, so their number is even, not {}", name,
         l.micro_batches());
  }
  if (l.pp > model.layers) fail("--pp {}: more stages than {}'s {} layers", l.pp, model.name, model.layers);
  if (l.has_shard_groups()) {
    fail("--zero-shards {}: is not for --schedule {}, whose two copies of the parameters are summed", l.zero_shards,
         name);
  }
  if (l.kfac_interval > 0) fail("--optimizer kfac: is not for --schedule {}, which has parameters twice", name);
  if (l.compress.is_on()) {
    fail("--compress gradients={}: is not for --schedule {}, which has parameters twice", name_of(l.compress), name);
  }
}

void validate_pipeline(const Layout& l, const Transformer& model) {
  const bool several_chunks = row_of(l.schedule).several_chunks;
  if (row_of(l.schedule).several_waves && l.vpp % 2 != 0) {
    fail("--schedule {}: has two model chunks per pipeline rank for every wave (--vpp 2, 4, 6, ...), not {}",
         name_of(l.schedule), l.vpp);
  }
  if (row_of(l.schedule).in_waves && !row_of(l.schedule).several_waves && l.vpp != 2) {
    fail("--schedule {}: has two model chunks per pipeline rank (--vpp 2), not {}", name_of(l.schedule), l.vpp);
  }
  if (several_chunks && l.vpp == 1) {
    fail("--schedule {}: needs --vpp above 1 (model chunks per pipeline rank)", name_of(l.schedule));
  }
  if (l.vpp > 1) {
    if (!several_chunks) {
      fail("--vpp {}: needs a --schedule for several model chunks (interleaved, breadth-first, auto), not {}", l.vpp,
           name_of(l.schedule));
    }
    if (l.pp < 2) fail("--vpp {}: needs --pp above 1", l.vpp);
    if (row_of(l.schedule).in_rounds && !l.has_whole_rounds()) {
      fail("--schedule {}: {} micro-batches are not divisible by --pp {}", name_of(l.schedule), l.micro_batches(),
           l.pp);
    }
  }
  validate_directions(l, model);
  if (checked_product({l.pp, l.vpp}, "--pp * --vpp") / l.directions() > model.layers) {
    fail("--pp {} * --vpp {}: more model chunks than {}'s {} layers", l.pp, l.vpp, model.name, model.layers);
  }
  if (l.stage_layers.empty()) return;
  if (static_cast<std::int64_t>(l.stage_layers.size()) != l.model_chunks()) {
    fail("--stage-layers: {} numbers given, {} model chunks ({}) need one each", l.stage_layers.size(),
         l.model_chunks(), l.directions() > 1 ? "--pp" : "--pp * --vpp");
  }
  std::int64_t sum = 0;
  for (const std::int64_t n : l.stage_layers) {
    if (n < 1 || n > model.layers) fail("--stage-layers: {} is not in 1..{}", n, model.layers);
    sum += n;
  }
  if (sum != model.layers) fail("--stage-layers: sums to {}, but {} has {} layers", sum, model.name, model.layers);
}

void validate_recompute(const Layout& l, const Transformer& model) {
  const std::vector<std::int64_t>& wished = l.recompute_layers;
  if (wished.empty()) return;
  if (!recomputes_layers(l.recompute)) {
    fail("--recompute-layers: is for --recompute full or local, not {}", name_of(l.recompute));
  }
  if (wished.size() == 1) {
    if (wished[0] < 1 || wished[0] > model.layers) {
      fail("--recompute-layers: {} is not in 1..{}", wished[0], model.layers);
    }
    return;
  }
  const std::vector<std::int64_t> layers = layers_per_chunk(l, model);
  if (std::ssize(wished) != l.model_chunks()) {
    fail("--recompute-layers: {} numbers given; one for all, or one for each of {} model chunks", wished.size(),
         l.model_chunks());
  }
  if (std::ranges::max(wished) == 0) fail("--recompute-layers: all are 0; give --recompute none");
  for (std::size_t chunk = 0; chunk < wished.size(); ++chunk) {
    if (wished[chunk] < 0 || wished[chunk] > layers[chunk]) {
      fail("--recompute-layers: {} is not in 0..{}, the layers of model chunk {}", wished[chunk], layers[chunk], chunk);
    }
  }
}

// Keeps every tensor and every product of sizes that the graph builder computes inside 63 bits. 16 covers the bytes of
// an element and the few factors of a kernel's traffic.
void validate_sizes(const Layout& l, const Transformer& model) {
  constexpr std::int64_t kMargin = 16;
  const std::string batch = fmt::format("--micro-batch {} * --seq {} with {}", l.micro_batch, l.seq, model.name);
  checked_product({l.global_batch, l.seq}, fmt::format("--global-batch {} * --seq {}", l.global_batch, l.seq));
  const std::int64_t padded_vocab =
      checked_sum({model.vocab, checked_product({128, l.tp}, "--tp")}, fmt::format("--vocab {}", model.vocab));
  checked_product({kMargin, padded_vocab, model.hidden}, fmt::format("--vocab {} * hidden", model.vocab));
  checked_product({kMargin, total_parameters(model)}, fmt::format("parameters of {}", model.name));
  const std::int64_t heads = checked_product({model.heads, 3 * model.head_dim}, batch);
  const std::int64_t latent = model.latent ? model.latent->nope_head_dim + model.latent->value_head_dim : 0;
  for (const std::int64_t width : {model.hidden, padded_vocab, checked_product({2, model.ffn}, batch), heads,
                                   checked_product({model.heads, latent}, batch)}) {
    checked_product({kMargin, l.micro_batch, l.seq, width}, batch);
  }
  if (l.attention == AttentionKernel::unfused) {
    checked_product({kMargin, l.micro_batch, model.heads, l.seq, l.seq}, batch + ", --attention unfused");
  }
  if (!model.experts) return;
  const Experts& experts = *model.experts;
  const double copies = static_cast<double>(l.micro_batch * l.seq) * static_cast<double>(experts.top_k) *
                        std::max(1.0, experts.capacity_factor);
  const double rows = (copies + static_cast<double>(experts.count)) * static_cast<double>(l.etp);
  const double width = std::max(static_cast<double>(model.hidden), 2 * static_cast<double>(experts.ffn));
  if (rows * width * kMargin > 9e18) fail("{}: its expert rows do not fit in 63 bits", batch);
}

void validate_experts(const Layout& l, const Transformer& model) {
  if (!model.experts) {
    if (l.ep != 1) fail("--ep {}: {} has no experts", l.ep, model.name);
    if (l.dispatch_fp8) fail("--dispatch-fp8: {} has no experts", model.name);
    if (l.ep_forwarding) fail("--ep-forwarding: {} has no experts", model.name);
    return;
  }
  if (l.expert_exchange == ExpertExchange::uneven && l.experts_gather_tokens()) {
    fail("--expert-exchange uneven: --etp {} ranks gather each other's tokens before the experts, which is padded",
         l.etp);
  }
  if (l.expert_exchange == ExpertExchange::gathered) {
    if (l.dispatch_fp8) fail("--expert-exchange gathered: is not for --dispatch-fp8");
    if (l.ep_forwarding) fail("--expert-exchange gathered: is not for --ep-forwarding");
  }
  if (l.dispatch_fp8 && l.precision == ElementType::fp32)
    fail("--dispatch-fp8: needs --precision bf16 or fp16, not fp32");
  if (l.dispatch_fp8)
    require_divides("--dispatch-fp8: a block of", kDispatchFp8.block, "the hidden size", model.hidden);
  const std::int64_t expert_ranks = checked_product({l.ep, l.etp}, "--ep * --etp");
  if ((l.tp * l.cp * l.dp) % expert_ranks != 0) {
    fail("--ep {} * --etp {}: does not divide --tp {} * --cp {} * --dp {} = {} ranks of a pipeline stage", l.ep, l.etp,
         l.tp, l.cp, l.dp, l.tp * l.cp * l.dp);
  }
  require_divides("--ep", l.ep, "the number of experts", model.experts->count);
  require_divides("--etp", l.etp, "the expert's feed-forward size", model.experts->ffn);
  if (model.experts->shared_ffn > 0)
    require_divides("--tp", l.tp, "the shared experts' size", model.experts->shared_ffn);
  if (l.etp != l.tp && l.tp > 1 && !l.sequence_parallel) {
    fail("--etp {}: differs from --tp {} and so needs --sequence-parallel (tokens split over tensor ranks)", l.etp,
         l.tp);
  }
  if (l.tp > 1 && !l.sequence_parallel) {
    // Tensor-parallel ranks of experts are neighbours, and must be ranks that hold the same tokens.
    const auto inner = std::find_if(l.mesh_order.begin(), l.mesh_order.end(),
                                    [&](Axis axis) { return axis == Axis::tp || dense_mesh(l).extent(axis) > 1; });
    if (*inner != Axis::tp) {
      fail("--mesh-order: {} is inside tp; experts with --tp {} need tp innermost or --sequence-parallel",
           name_of(*inner), l.tp);
    }
  }
}

}  // namespace

void validate(const Layout& layout, const Transformer& model, std::int64_t devices) {
  validate_degrees(layout, devices);
  validate_numbers(layout);
  validate_shards(layout, model);
  validate_secondary_shards(layout, model);
  validate_compression(layout, model);
  validate_kfac(layout, model);
  validate_tasks(layout, model);
  validate_tensor_parallel(layout, model);
  validate_batches(layout, model);
  validate_layer_group(layout, model);
  validate_reduce_every(layout, model);
  validate_sizes(layout, model);
  validate_pipeline(layout, model);
  validate_recompute(layout, model);
  validate_warm_up(layout);
  validate_slices(layout, model);
  validate_experts(layout, model);
  if (model.experts) expert_mesh(layout);
}

}  // namespace weft
