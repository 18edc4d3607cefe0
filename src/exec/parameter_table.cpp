#include "exec/parameter_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/mix.hpp"

namespace weft {
namespace {

using Start = ParameterTensor::Start;
constexpr double kDeviation = 0.02;  // GPT-2

void check_trainable(const Transformer& model) {
  const auto refuse = [&](std::string_view what) {
    fail("model '{}': {}: weft run cannot train it yet", model.name, what);
  };
  if (model.experts && model.experts->shared_gate) refuse("a gate on shared experts");
  if (model.experts && model.experts->gate_bias) refuse("a correction of the router's scores");
  const std::int64_t rotated = model.latent ? model.latent->rope_head_dim : model.head_dim;
  if (model.positions == Positions::rotary && rotated % 2 != 0) {
    fail("model '{}': {}: value {} is odd; rotary positions pair the halves of a head", model.name,
         model.latent ? "latent.rope_head_dim" : "head_dim", rotated);
  }
}

// Tensors laid down one after another.
class TensorList {
 public:
  void add(std::string name, std::vector<std::int64_t> shape, Start start, double deviation = 0) {
    tensors_.push_back({std::move(name), std::move(shape), start, deviation});
  }

  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias, double deviation) {
    add(name + ".weight", {outputs, inputs}, Start::normal, deviation);
    if (bias) add(name + ".bias", {outputs}, Start::zeros);
  }

  void norm(const std::string& name, const Transformer& model) {
    add(name + ".weight", {model.hidden}, Start::ones);
    if (model.norm == NormKind::layer_norm) add(name + ".bias", {model.hidden}, Start::zeros);
  }

  void vocabulary(const std::string& name, const Transformer& model) {
    add(name + ".weight", {model.vocab, model.hidden}, Start::normal, kDeviation);
  }

  std::vector<ParameterTensor> take() { return std::move(tensors_); }

 private:
  std::vector<ParameterTensor> tensors_;
};

// Of the parameters that make queries, keys and values.
std::vector<Role> query_roles(const Transformer& model) {
  using enum Role;
  if (!model.latent) return model.qk_norm ? std::vector{qkv, qk_norm} : std::vector{qkv};
  if (model.latent->q_rank == 0) return {query_up, kv_down, kv_norm, kv_up};
  return {query_down, query_norm, query_up, kv_down, kv_norm, kv_up};
}

std::vector<Role> feed_forward_roles(const Transformer& model, std::int32_t layer) {
  if (!model.is_moe_layer(layer)) return {Role::ffn_in, Role::ffn_out};
  if (model.experts->shared_ffn == 0) return {Role::router, Role::expert_in, Role::expert_out};
  return {Role::router, Role::expert_in, Role::expert_out, Role::shared_in, Role::shared_out};
}

// Element i of a tensor whose numbers start from `key`. Twelve uniform 16-bit numbers have a sum of mean 6 * 65535 and
// variance 12 * (65536^2 - 1) / 12: over 65536 it deviates by 1 - 2^-33.
float normal_element(std::uint64_t key, std::int64_t i, double deviation) {
  std::int64_t sum = 0;
  for (std::uint64_t k = 0; k < 3; ++k) {
    const std::uint64_t bits = mix_bits(key + 3 * static_cast<std::uint64_t>(i) + k);
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
  }
  return static_cast<float>(static_cast<double>(sum - std::int64_t{6} * 65535) * (deviation / 65536));
}

}  // namespace

std::int64_t ParameterTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<ParameterPlace> parameter_places(const Transformer& model) {
  std::vector<ParameterPlace> places{{-1, Role::embedding}};
  if (model.positions == Positions::learned) places.push_back({-1, Role::positions});
  for (std::int32_t layer = 0; layer < model.layers; ++layer) {
    places.push_back({layer, Role::attention_norm});
    for (const Role role : query_roles(model)) places.push_back({layer, role});
    for (const Role role : {Role::attention_out, Role::ffn_norm}) places.push_back({layer, role});
    for (const Role role : feed_forward_roles(model, layer)) places.push_back({layer, role});
  }
  places.push_back({-1, Role::final_norm});
  if (!model.tied_embeddings) places.push_back({-1, Role::head});
  return places;
}

std::vector<ParameterTensor> parameter_tensors(const Transformer& model, std::int32_t layer, Role role) {
  check_trainable(model);
  const std::int64_t value_dim = model.latent ? model.latent->value_head_dim : model.head_dim;
  const std::int64_t context = model.heads * value_dim;
  const std::int64_t gates = model.activation == Activation::swiglu ? 2 : 1;
  const double into_stream = kDeviation / std::sqrt(2.0 * static_cast<double>(model.layers));
  const std::string name = layer < 0 ? std::string(name_of(role)) : fmt::format("layers.{}.{}", layer, name_of(role));
  TensorList list;
  switch (role) {
    case Role::embedding:
      list.vocabulary("embedding", model);
      break;
    case Role::head:
      list.vocabulary(model.tied_embeddings ? "embedding" : "head", model);
      break;
    case Role::positions:
      list.add("positions.weight", {model.max_seq, model.hidden}, Start::normal, kDeviation);
      break;
    case Role::attention_norm:
    case Role::ffn_norm:
    case Role::final_norm:
      list.norm(name, model);
      break;
    case Role::qkv:
    case Role::kv:  // of the same tensor
      list.linear(fmt::format("layers.{}.qkv", layer), (model.heads + 2 * model.kv_heads) * model.head_dim,
                  model.hidden, model.linear_bias || model.qkv_bias, kDeviation);
      break;
    case Role::qk_norm:
      list.add(fmt::format("layers.{}.q_norm.weight", layer), {model.head_dim}, Start::ones);
      list.add(fmt::format("layers.{}.k_norm.weight", layer), {model.head_dim}, Start::ones);
      break;
    case Role::query_down:
      list.linear(name, model.latent->q_rank, model.hidden, false, kDeviation);
      break;
    case Role::query_norm:
      list.add(name + ".weight", {model.latent->q_rank}, Start::ones);
      break;
    case Role::query_up:
      list.linear(name, model.heads * model.head_dim, model.latent->q_rank > 0 ? model.latent->q_rank : model.hidden,
                  false, kDeviation);
      break;
    case Role::kv_down:
      list.linear(name, model.latent->kv_rank + model.latent->rope_head_dim, model.hidden, false, kDeviation);
      break;
    case Role::kv_norm:
      list.add(name + ".weight", {model.latent->kv_rank}, Start::ones);
      break;
    case Role::kv_up:
      list.linear(name, model.heads * (model.latent->nope_head_dim + value_dim), model.latent->kv_rank, false,
                  kDeviation);
      break;
    case Role::attention_out:
      list.linear(name, model.hidden, context, model.linear_bias, into_stream);
      break;
    case Role::ffn_in:
      list.linear(name, gates * model.ffn, model.hidden, model.linear_bias, kDeviation);
      break;
    case Role::ffn_out:
      list.linear(name, model.hidden, model.ffn, model.linear_bias, into_stream);
      break;
    case Role::router:
      list.linear(name, model.experts->count, model.hidden, false, kDeviation);
      break;
    case Role::expert_in:
    case Role::expert_out: {
      const std::int64_t ffn = model.experts->ffn;
      for (std::int64_t e = 0; e < model.experts->count; ++e) {
        const std::string of_expert = fmt::format("layers.{}.experts.{}.", layer, e);
        if (role == Role::expert_in) {
          list.linear(of_expert + "in", gates * ffn, model.hidden, model.linear_bias, kDeviation);
        } else {
          list.linear(of_expert + "out", model.hidden, ffn, model.linear_bias, into_stream);
        }
      }
      break;
    }
    case Role::shared_in:
      list.linear(name, gates * model.experts->shared_ffn, model.hidden, model.linear_bias, kDeviation);
      break;
    case Role::shared_out:
      list.linear(name, model.hidden, model.experts->shared_ffn, model.linear_bias, into_stream);
      break;
    default:
      WEFT_CHECK(!"a role without parameters");
  }
  return list.take();
}

void initial_elements(const ParameterTensor& tensor, std::uint64_t seed, std::int64_t first, std::span<float> out) {
  if (tensor.start != Start::normal) {
    std::ranges::fill(out, tensor.start == Start::ones ? 1.0F : 0.0F);
    return;
  }
  const std::uint64_t key = mix_bits(mix_bits(seed) ^ hash_text(tensor.name));
  for (std::size_t k = 0; k < out.size(); ++k) {
    out[k] = normal_element(key, first + static_cast<std::int64_t>(k), tensor.deviation);
  }
}

}  // namespace weft
