#include "io/megatron/megatron_model.hpp"

#include <algorithm>
#include <cctype>

#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::int64_t kVocabulary = 51200;
constexpr std::int64_t kVocabularyStep = 128;
constexpr std::int64_t kMaxPattern = 10'000;  // layers that a pattern may name

void read_attention(MegatronReader& flags, Transformer& model) {
  const auto groups = flags.integer("--num-query-groups");
  const auto channels = flags.integer("--kv-channels");
  model.kv_heads = model.heads;
  if (flags.is_set("--group-query-attention")) {
    model.kv_heads = groups.value_or(1);
  } else if (groups) {
    flags.note("--num-query-groups", "has no effect without --group-query-attention");
  }
  const bool latent = flags.is_set("--multi-latent-attention");
  if (!channels && !latent && model.hidden % model.heads != 0) {
    fail("{} {}: does not divide --hidden-size {}, and there is no --kv-channels", flags.where("--num-attention-heads"),
         model.heads, model.hidden);
  }
  model.head_dim = channels.value_or(std::max<std::int64_t>(1, model.hidden / model.heads));
  model.qkv_bias = flags.is_set("--add-qkv-bias");
  model.qk_norm = flags.is_set("--qk-layernorm");
  const auto q_rank = flags.integer("--q-lora-rank"), kv_rank = flags.integer("--kv-lora-rank");
  const auto nope = flags.integer("--qk-head-dim"), rope = flags.integer("--qk-pos-emb-head-dim"),
             value = flags.integer("--v-head-dim");
  if (!latent) {
    for (const char* name :
         {"--q-lora-rank", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim"}) {
      if (flags.text(name)) flags.note(name, "has no effect without --multi-latent-attention");
    }
    return;
  }
  // Megatron's default rank has changed between versions.
  if (!kv_rank) fail("{}: needs --kv-lora-rank", flags.where("--multi-latent-attention"));
  model.latent = LatentAttention{.q_rank = q_rank.value_or(0),
                                 .kv_rank = *kv_rank,
                                 .nope_head_dim = nope.value_or(128),
                                 .rope_head_dim = rope.value_or(64),
                                 .value_head_dim = value.value_or(128)};
  model.kv_heads = model.heads;
  model.head_dim = model.latent->nope_head_dim + model.latent->rope_head_dim;
  if (!q_rank) flags.note("--multi-latent-attention", "without --q-lora-rank queries are projected directly");
  if (model.qk_norm) {  // the norms of the two low-rank values, which latent attention always has here
    model.qk_norm = false;
  } else {
    flags.note("--multi-latent-attention", "the low-rank values are normed as with --qk-layernorm");
  }
}

void read_positions(MegatronReader& flags, Transformer& model) {
  const std::int64_t seq = flags.integer("--seq-length").value_or(2048);
  model.max_seq = flags.integer("--max-position-embeddings").value_or(seq);
  const auto type =
      flags.one_of("--position-embedding-type", {"learned_absolute", "rope", "mrope", "yarn", "relative", "none"});
  const bool rotary = flags.is_set("--use-rotary-position-embeddings") || (type && *type != "learned_absolute");
  model.positions = rotary ? Positions::rotary : Positions::learned;
  if (type == "relative" || type == "none") {
    flags.note("--position-embedding-type", "taken as rope: no parameters, and no dropout");
  }
}

// A rate that is not named is Megatron's 0.1. What zeroes what a block adds to the stream zeroes embeddings too.
void read_dropout(MegatronReader& flags, Transformer& model) {
  const char *const of_hidden = "--hidden-dropout", *const of_attention = "--attention-dropout";
  for (const char* const name : {of_hidden, of_attention}) {
    const auto rate = flags.number(name);
    if (rate && *rate >= 1) fail("{} {}: is not a rate in [0, 1)", flags.where(name), *flags.text(name));
    if (rate && *rate > 0 && model.positions != Positions::learned) {
      flags.note(name, "Weft plans models without learned positions without dropout");
    }
  }
  if (model.positions != Positions::learned || has_no_dropout(flags)) return;  // the layout says it
  if (const auto rate = flags.number(of_hidden)) model.dropout.hidden = model.dropout.embedding = *rate;
  if (const auto rate = flags.number(of_attention)) model.dropout.attention = *rate;
}

void read_vocabulary(MegatronReader& flags, Transformer& model) {
  const auto size = flags.integer("--vocab-size");
  model.vocab = size.value_or(kVocabulary);
  if (!size) flags.note("--vocab-size", "is absent (the tokenizer would decide): 51200 is taken; --vocab overrides");
  const auto step = flags.integer("--make-vocab-size-divisible-by");
  if (step && *step != kVocabularyStep) {
    flags.note("--make-vocab-size-divisible-by", "the vocabulary is padded to multiples of 128 * tp");
  }
}

// dense_first and every as Weft has them, from Megatron's frequency (the first of each n layers) or pattern.
void read_layer_frequency(MegatronReader& flags, const Transformer& model, Experts& experts) {
  const char* const name = "--moe-layer-freq";
  const auto text = flags.text(name);
  if (!text) return;
  if (std::all_of(text->begin(), text->end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
    experts.every = flags.integer(name).value();
    if (experts.every > 1) {
      flags.note(name, "Weft makes the last of each group of layers the MoE layer, Megatron the first");
    }
    return;
  }
  const auto pattern = parse_layer_pattern(*text, static_cast<std::size_t>(std::min(model.layers, kMaxPattern)));
  if (!pattern) fail("{} '{}': is neither a number nor a list such as [0]*3+[1]*58", flags.where(name), *text);
  if (static_cast<std::int64_t>(pattern->size()) != model.layers) {
    fail("{} '{}': names {} layers, --num-layers has {}", flags.where(name), *text, pattern->size(), model.layers);
  }
  const auto fits = [&](const Experts& candidate) {
    Transformer probe = model;
    probe.experts = candidate;
    for (std::size_t i = 0; i < pattern->size(); ++i) {
      if (probe.is_moe_layer(static_cast<std::int64_t>(i)) != ((*pattern)[i] == 1)) return false;
    }
    return true;
  };
  const auto first = std::find(pattern->begin(), pattern->end(), 1) - pattern->begin();
  if (first == model.layers) fail("{} '{}': makes no layer an MoE layer", flags.where(name), *text);
  for (std::int64_t every = 1; every <= first + 1; ++every) {
    Experts candidate = experts;
    candidate.every = every;
    candidate.dense_first = first - (every - 1);
    if (!fits(candidate)) continue;
    experts = candidate;
    return;
  }
  flags.note(name, "the pattern is not 'some dense layers, then every n-th': all layers are taken as MoE");
}

void read_experts(MegatronReader& flags, Transformer& model) {
  const auto count = flags.integer("--num-experts");
  const auto top_k = flags.integer("--moe-router-topk"), ffn = flags.integer("--moe-ffn-hidden-size"),
             shared = flags.integer("--moe-shared-expert-intermediate-size", 0);
  const auto groups = flags.integer("--moe-router-num-groups"), group_topk = flags.integer("--moe-router-group-topk");
  const auto capacity = flags.number("--moe-expert-capacity-factor"), aux_loss = flags.number("--moe-aux-loss-coeff");
  const auto dropped = flags.one_of("--moe-token-drop-policy", {"probs", "position"});
  const bool before_choice = flags.is_set("--moe-router-pre-softmax");
  const bool gate_bias = flags.is_set("--moe-router-enable-expert-bias"),
             shared_gate = flags.is_set("--moe-shared-expert-gate");
  if (!count) {
    for (const char* name : {"--moe-router-topk", "--moe-ffn-hidden-size", "--moe-shared-expert-intermediate-size",
                             "--moe-expert-capacity-factor", "--moe-aux-loss-coeff", "--moe-token-drop-policy",
                             "--moe-layer-freq", "--moe-router-num-groups", "--moe-router-group-topk"}) {
      if (flags.text(name)) flags.note(name, "has no effect without --num-experts");
    }
    return;
  }
  Experts experts{
      .count = *count,
      .top_k = top_k.value_or(std::min<std::int64_t>(2, *count)),
      .ffn = ffn.value_or(model.ffn),
      .shared_ffn = shared.value_or(0),
      .capacity_factor = capacity.value_or(0),
      .gate_bias = gate_bias,
      .shared_gate = shared_gate && shared.value_or(0) > 0,
      // Megatron's default is probs; without a capacity nothing is dropped.
      .gate_order = capacity && dropped.value_or("probs") == "probs" ? GateOrder::probs : GateOrder::position,
      // Softmax over the chosen ones makes their weights add up to one.
      .renormalise = !before_choice,
      .aux_loss_coeff = aux_loss.value_or(0),
      // Megatron limits a token's groups where it is told how many.
      .router_groups = group_topk ? groups.value_or(1) : 1,
      .router_group_topk = groups ? group_topk.value_or(1) : 1};
  read_layer_frequency(flags, model, experts);
  model.experts = experts;
}

}  // namespace

std::optional<Transformer> read_megatron_model(MegatronReader& flags) {
  const auto layers = flags.integer("--num-layers"), hidden = flags.integer("--hidden-size"),
             heads = flags.integer("--num-attention-heads");
  if (!layers && !hidden && !heads) return std::nullopt;
  for (const auto& [value, name] :
       {std::pair{layers, "--num-layers"}, {hidden, "--hidden-size"}, {heads, "--num-attention-heads"}}) {
    if (!value) fail("{}: {} is missing", flags.file(), name);
  }
  Transformer model;
  model.name = "megatron";
  model.layers = *layers;
  model.hidden = *hidden;
  model.heads = *heads;
  model.activation = flags.is_set("--swiglu") ? Activation::swiglu : Activation::gelu;
  // Megatron's default: 4h, or two thirds of it in whole 64s where the gate is a third matrix.
  const std::int64_t default_ffn =
      model.activation == Activation::swiglu ? model.hidden * 8 / 3 / 64 * 64 : 4 * model.hidden;
  model.ffn = flags.integer("--ffn-hidden-size").value_or(std::max<std::int64_t>(1, default_ffn));
  const auto norm = flags.one_of("--normalization", {"LayerNorm", "RMSNorm"});
  model.norm = norm == "RMSNorm" ? NormKind::rms_norm : NormKind::layer_norm;
  model.linear_bias = !flags.is_set("--disable-bias-linear");
  model.tied_embeddings = !flags.is_set("--untie-embeddings-and-output-weights");
  read_attention(flags, model);
  read_positions(flags, model);
  read_dropout(flags, model);
  read_vocabulary(flags, model);
  read_experts(flags, model);
  try {
    validate(model);
  } catch (const Error& error) {
    fail("{}: {}", flags.file(), error.what());
  }
  return model;
}

bool has_no_dropout(MegatronReader& flags) {
  const auto hidden = flags.number("--hidden-dropout"), attention = flags.number("--attention-dropout");
  return hidden == 0.0 && attention == 0.0;
}

std::optional<std::vector<int>> parse_layer_pattern(std::string_view text, std::size_t limit) {
  std::string plain;
  for (const char c : text) {
    if (c != ' ' && c != '(' && c != ')') plain += c;
  }
  std::vector<int> pattern;
  std::size_t at = 0;
  while (true) {
    if (at >= plain.size() || plain[at++] != '[') return std::nullopt;
    std::vector<int> group;
    while (at < plain.size() && plain[at] != ']') {
      if (plain[at] == ',' && !group.empty()) ++at;
      if (at >= plain.size() || (plain[at] != '0' && plain[at] != '1')) return std::nullopt;
      group.push_back(plain[at++] - '0');
    }
    if (at >= plain.size() || group.empty()) return std::nullopt;
    ++at;
    std::size_t times = 1;
    if (at < plain.size() && plain[at] == '*') {
      times = 0;
      const std::size_t digits = ++at;
      for (; at < plain.size() && std::isdigit(static_cast<unsigned char>(plain[at])) != 0; ++at) {
        times = times * 10 + static_cast<std::size_t>(plain[at] - '0');
        if (times > limit) return std::nullopt;
      }
      if (at == digits) return std::nullopt;
    }
    if (pattern.size() + times * group.size() > limit) return std::nullopt;
    for (std::size_t i = 0; i < times; ++i) pattern.insert(pattern.end(), group.begin(), group.end());
    if (at == plain.size()) return pattern;
    if (plain[at++] != '+') return std::nullopt;
  }
}

}  // namespace weft
