// Parameters are counted with checked arithmetic, so no shape from a user can overflow them.
#include "model/counts.hpp"

#include "base/checked.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

constexpr std::string_view kWhat = "model parameters";

std::int64_t times(std::initializer_list<std::int64_t> factors) {
  return checked_product(factors, kWhat);
}
std::int64_t plus(std::initializer_list<std::int64_t> terms) {
  return checked_sum(terms, kWhat);
}

std::int64_t latent_matrices(const Transformer& shape) {
  const LatentAttention& latent = *shape.latent;
  const std::int64_t queries = times({shape.heads, plus({latent.nope_head_dim, latent.rope_head_dim})});
  const std::int64_t keys_values = times({shape.heads, plus({latent.nope_head_dim, latent.value_head_dim})});
  return plus(
      {latent.q_rank > 0 ? times({latent.q_rank, plus({shape.hidden, queries})}) : times({shape.hidden, queries}),
       times({shape.hidden, plus({latent.kv_rank, latent.rope_head_dim})}), times({latent.kv_rank, keys_values}),
       times({shape.heads, latent.value_head_dim, shape.hidden})});
}

std::int64_t qkv_width(const Transformer& shape) {
  return times({plus({shape.heads, shape.kv_heads, shape.kv_heads}), shape.head_dim});
}

// The weights of attention that take part in matrix products: two FLOPs each per token.
std::int64_t attention_matrices(const Transformer& shape) {
  if (shape.latent) return latent_matrices(shape);
  return times({shape.hidden, plus({qkv_width(shape), times({shape.heads, shape.head_dim})})});
}

// Biases and the norms inside attention.
std::int64_t attention_vectors(const Transformer& shape) {
  if (shape.latent) return plus({shape.latent->q_rank, shape.latent->kv_rank});
  std::int64_t count = shape.qk_norm ? times({2, shape.head_dim}) : 0;
  if (shape.linear_bias) return plus({count, qkv_width(shape), shape.hidden});
  if (shape.qkv_bias) return plus({count, qkv_width(shape)});
  return count;
}

// SwiGLU has a gate beside the up projection.
std::int64_t up_projections(const Transformer& shape) {
  return shape.activation == Activation::swiglu ? 2 : 1;
}

std::int64_t ffn_matrices(const Transformer& shape, std::int64_t inner) {
  return times({up_projections(shape) + 1, shape.hidden, inner});
}

std::int64_t ffn_parameters(const Transformer& shape, std::int64_t inner) {
  if (inner == 0) return 0;
  const std::int64_t biases = shape.linear_bias ? plus({times({up_projections(shape), inner}), shape.hidden}) : 0;
  return plus({ffn_matrices(shape, inner), biases});
}

std::int64_t norm_parameters(const Transformer& shape) {
  return times({shape.norm == NormKind::layer_norm ? 2 : 1, shape.hidden});
}

LayerParameters parameters_of(const Transformer& shape, bool moe) {
  LayerParameters count;
  count.attention = plus({attention_matrices(shape), attention_vectors(shape)});
  count.norms = times({2, norm_parameters(shape)});
  if (!moe) {
    count.dense_ffn = ffn_parameters(shape, shape.ffn);
    return count;
  }
  const Experts& experts = *shape.experts;
  count.dense_ffn = plus({ffn_parameters(shape, experts.shared_ffn), experts.shared_gate ? shape.hidden : 0});
  count.router = plus({times({shape.hidden, experts.count}), experts.gate_bias ? experts.count : 0});
  count.experts = times({experts.count, ffn_parameters(shape, experts.ffn)});
  return count;
}

std::int64_t checked_total(const LayerParameters& count) {
  return plus({count.attention, count.dense_ffn, count.router, count.experts, count.norms});
}

// The two products with the s x s matrix, for one layer and one token.
double attention_core_flops(const Transformer& shape, double seq) {
  const std::int64_t value_dim = shape.latent ? shape.latent->value_head_dim : shape.head_dim;
  return 2 * seq * static_cast<double>(shape.heads) *
         (static_cast<double>(shape.head_dim) + static_cast<double>(value_dim));
}

double layer_flops(const Transformer& shape, bool moe, double seq) {
  double weights = static_cast<double>(attention_matrices(shape));
  if (moe) {
    const Experts& experts = *shape.experts;
    weights += static_cast<double>(shape.hidden) * static_cast<double>(experts.count + (experts.shared_gate ? 1 : 0));
    weights += static_cast<double>(experts.top_k) * static_cast<double>(ffn_matrices(shape, experts.ffn));
    weights += static_cast<double>(ffn_matrices(shape, experts.shared_ffn));
  } else {
    weights += static_cast<double>(ffn_matrices(shape, shape.ffn));
  }
  return 2 * weights + attention_core_flops(shape, seq);
}

// Forward FLOPs of all layers for one token, without the logits.
double layers_flops(const Transformer& shape, double seq) {
  const std::int64_t moe = shape.moe_layers();
  const double dense = static_cast<double>(shape.layers - moe) * layer_flops(shape, false, seq);
  return moe == 0 ? dense : dense + static_cast<double>(moe) * layer_flops(shape, true, seq);
}

double token_count(std::int64_t seq, std::int64_t sequences) {
  if (seq < 1) fail("seq: value {} is not at least 1", seq);
  if (sequences < 1) fail("sequences: value {} is not at least 1", sequences);
  return static_cast<double>(seq) * static_cast<double>(sequences);
}

}  // namespace

LayerParameters layer_parameters(const Transformer& shape, std::int64_t layer) {
  return parameters_of(shape, shape.is_moe_layer(layer));
}

std::int64_t embedding_parameters(const Transformer& shape) {
  const std::int64_t positions = shape.positions == Positions::learned ? shape.max_seq : 0;
  return times({plus({shape.vocab, positions}), shape.hidden});
}

std::int64_t head_parameters(const Transformer& shape) {
  return plus({norm_parameters(shape), shape.tied_embeddings ? 0 : times({shape.vocab, shape.hidden})});
}

std::int64_t total_parameters(const Transformer& shape) {
  const std::int64_t moe = shape.moe_layers();
  return plus({embedding_parameters(shape), head_parameters(shape),
               times({shape.layers - moe, checked_total(parameters_of(shape, false))}),
               moe == 0 ? 0 : times({moe, checked_total(parameters_of(shape, true))})});
}

std::int64_t active_parameters(const Transformer& shape) {
  if (!shape.experts) return total_parameters(shape);
  const std::int64_t asleep = times(
      {shape.moe_layers(), shape.experts->count - shape.experts->top_k, ffn_parameters(shape, shape.experts->ffn)});
  return total_parameters(shape) - asleep;
}

Flops forward_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences) {
  const double logits = 2 * static_cast<double>(shape.hidden) * static_cast<double>(shape.vocab);
  return {token_count(seq, sequences) * (layers_flops(shape, static_cast<double>(seq)) + logits)};
}

Flops model_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences) {
  return 3.0 * forward_flops(shape, seq, sequences);
}

Flops masked_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences) {
  const double core = attention_core_flops(shape, static_cast<double>(seq));
  return {token_count(seq, sequences) * static_cast<double>(shape.layers) * core / 2};
}

Flops hardware_flops(const Transformer& shape, std::int64_t seq, std::int64_t sequences, Recompute recompute,
                     const std::vector<bool>& recomputed) {
  const double tokens = token_count(seq, sequences);
  const auto length = static_cast<double>(seq);
  double again = 0;
  if (recompute == Recompute::selective) {
    again = static_cast<double>(shape.layers) * attention_core_flops(shape, length);
  }
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    if (!recomputes_layers(recompute) || !(recomputed.empty() || recomputed[layer])) continue;
    const bool moe = shape.is_moe_layer(layer);
    again += layer_flops(shape, moe, length);
    if (recompute == Recompute::local && moe) {
      again -= 2 * static_cast<double>(times({shape.experts->top_k, shape.experts->ffn})) *
               static_cast<double>(shape.hidden);
    }
  }
  return model_flops(shape, seq, sequences) + Flops{tokens * again};
}

}  // namespace weft
