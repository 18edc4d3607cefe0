// The checks of a shape; the overflow check is the counting itself.
#include "model/transformer.hpp"

#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "model/counts.hpp"

namespace weft {
namespace {

// A step graph may hold every layer; the deepest published model (DeepNet) has 1,000.
// So many small layers are planned by all policies in 1.7 minutes on two cores, in 4 GB; both grow with the layers.
constexpr std::int64_t kMaxLayers = 10'000;

// Checks one model's fields; every message opens with the model's name.
class Checker {
 public:
  explicit Checker(std::string_view model) : model_(model) {}

  void at_least(std::string_view field, std::int64_t value, std::int64_t min) const {
    if (value < min) fail("model '{}': {}: value {} is not at least {}", model_, field, value, min);
  }

  void within(std::string_view field, std::int64_t value, std::int64_t min, std::int64_t max) const {
    if (value < min || value > max) fail("model '{}': {}: value {} is not in {}..{}", model_, field, value, min, max);
  }

  // For fields that contradict each other; `rule` says what must hold.
  void holds(bool rule_holds, std::string_view field, std::int64_t value, std::string_view rule) const {
    if (!rule_holds) fail("model '{}': {}: value {} is not allowed: {}", model_, field, value, rule);
  }

 private:
  std::string_view model_;
};

void check_latent(const Checker& check, const Transformer& shape) {
  const LatentAttention& latent = *shape.latent;
  check.at_least("latent.q_rank", latent.q_rank, 0);
  check.at_least("latent.kv_rank", latent.kv_rank, 1);
  check.at_least("latent.nope_head_dim", latent.nope_head_dim, 1);
  check.at_least("latent.rope_head_dim", latent.rope_head_dim, 1);
  check.at_least("latent.value_head_dim", latent.value_head_dim, 1);
  check.holds(shape.kv_heads == shape.heads, "kv_heads", shape.kv_heads,
              "latent attention has as many key as query heads");
  check.holds(shape.head_dim - latent.nope_head_dim == latent.rope_head_dim, "head_dim", shape.head_dim,
              "with latent attention it is nope_head_dim + rope_head_dim");
  check.holds(!shape.linear_bias, "linear_bias", 1, "latent attention has no biases");
  check.holds(!shape.qkv_bias, "qkv_bias", 1, "latent attention has no biases");
  check.holds(!shape.qk_norm, "qk_norm", 1, "latent attention has its own norms");
}

void check_experts(const Checker& check, const Transformer& shape) {
  const Experts& experts = *shape.experts;
  check.at_least("experts.count", experts.count, 1);
  check.within("experts.top_k", experts.top_k, 1, experts.count);
  check.at_least("experts.ffn", experts.ffn, 1);
  check.at_least("experts.shared_ffn", experts.shared_ffn, 0);
  if (!std::isfinite(experts.capacity_factor) || experts.capacity_factor < 0) {
    fail("model '{}': experts.capacity_factor: value {} is not a number of at least 0", shape.name,
         experts.capacity_factor);
  }
  if (!std::isfinite(experts.aux_loss_coeff) || experts.aux_loss_coeff < 0) {
    fail("model '{}': experts.aux_loss_coeff: value {} is not a number of at least 0", shape.name,
         experts.aux_loss_coeff);
  }
  // At least one layer is MoE; a model without one has no experts.
  check.within("experts.dense_first", experts.dense_first, 0, shape.layers - 1);
  check.within("experts.every", experts.every, 1, shape.layers - experts.dense_first);
  check.within("experts.router_groups", experts.router_groups, 1, experts.count);
  check.holds(experts.count % experts.router_groups == 0, "experts.router_groups", experts.router_groups,
              "it must divide the number of experts");
  check.within("experts.router_group_topk", experts.router_group_topk, 1, experts.router_groups);
  check.holds(experts.top_k <= experts.count / experts.router_groups * experts.router_group_topk,
              "experts.router_group_topk", experts.router_group_topk, "its groups have fewer experts than top_k");
  check.holds(!experts.shared_gate || experts.shared_ffn > 0, "experts.shared_ffn", experts.shared_ffn,
              "a shared gate needs shared experts");
}

}  // namespace

bool Transformer::is_moe_layer(std::int64_t layer) const {
  if (!experts || layer < experts->dense_first) return false;
  return (layer - experts->dense_first) % experts->every == experts->every - 1;
}

std::int64_t Transformer::moe_layers() const {
  return experts ? (layers - experts->dense_first) / experts->every : 0;
}

void validate(const Transformer& shape) {
  const Checker check(shape.name);
  check.within("layers", shape.layers, 1, kMaxLayers);
  check.at_least("hidden", shape.hidden, 1);
  check.at_least("heads", shape.heads, 1);
  check.within("kv_heads", shape.kv_heads, 1, shape.heads);
  check.holds(shape.heads % shape.kv_heads == 0, "kv_heads", shape.kv_heads, "it must divide heads");
  check.at_least("head_dim", shape.head_dim, 1);
  check.at_least("ffn", shape.ffn, 1);
  check.at_least("vocab", shape.vocab, 1);
  check.at_least("max_seq", shape.max_seq, 1);
  for (const auto& [field, rate] : {std::pair{"dropout.embedding", shape.dropout.embedding},
                                    {"dropout.attention", shape.dropout.attention},
                                    {"dropout.hidden", shape.dropout.hidden}}) {
    if (!(rate >= 0 && rate < 1)) {
      fail("model '{}': {}: value {} is not a number from 0 to below 1", shape.name, field, rate);
    }
  }
  if (shape.latent) check_latent(check, shape);
  if (shape.experts) check_experts(check, shape);
  total_parameters(shape);  // throws where a product of sizes overflows
}

}  // namespace weft
