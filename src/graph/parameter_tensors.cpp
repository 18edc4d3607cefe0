#include "graph/parameter_tensors.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace weft {
namespace {

using Start = ParameterTensor::Start;
constexpr double kDeviation = 0.02;  // GPT-2

enum class Spread : std::uint8_t { whole, rows, columns };

// Tensors laid down one after another, all spread over one axis.
class TensorList {
 public:
  explicit TensorList(Axis layer_axis = Axis::tp) : layer_axis_(layer_axis) {}

  ParameterTensor& add(std::string name, std::vector<std::int64_t> shape, Start start, double deviation = 0) {
    ParameterTensor& tensor = tensors_.emplace_back();
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.start = start;
    tensor.deviation = deviation;
    tensor.layer_axis = layer_axis_;
    return tensor;
  }

  // A bias goes with the rows of its weight; where columns are split, every rank holds it (Shoeybi et al. 2019).
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias, double deviation,
              Spread spread = Spread::whole, const std::vector<Section>& sections = {}) {
    ParameterTensor& weight = add(name + ".weight", {outputs, inputs}, Start::normal, deviation);
    if (spread != Spread::whole) weight.splits = {{spread == Spread::rows ? 0 : 1, layer_axis_}};
    weight.sections = sections;
    if (!bias) return;
    ParameterTensor& vector = add(name + ".bias", {outputs}, Start::zeros);
    if (spread == Spread::rows) vector.splits = {{0, layer_axis_}};
    vector.sections = sections;
  }

  void norm(const std::string& name, const Transformer& model) {
    add(name + ".weight", {model.hidden}, Start::ones);
    if (model.norm == NormKind::layer_norm) add(name + ".bias", {model.hidden}, Start::zeros);
  }

  void vocabulary(const std::string& name, const Transformer& model) {
    ParameterTensor& table = add(name + ".weight", {model.vocab, model.hidden}, Start::normal, kDeviation);
    table.splits = {{0, layer_axis_}};
    table.padded_to = kVocabularyPadding;
  }

  // Ranks of `axis` have equal numbers of these tensors.
  void share_tensors_over(Axis axis) {
    for (ParameterTensor& tensor : tensors_) tensor.splits.push_back({kAmongTensors, axis});
  }

  ParameterTensor& last() { return tensors_.back(); }
  std::vector<ParameterTensor> take() { return std::move(tensors_); }

 private:
  Axis layer_axis_;
  std::vector<ParameterTensor> tensors_;
};

// Rows of queries, keys and values, head by head.
std::vector<Section> head_sections(const Transformer& model, Role role, std::int64_t tp) {
  const std::int64_t queries = model.heads * model.head_dim, keys = model.kv_heads * model.head_dim;
  const bool apart = tp > model.kv_heads;
  const bool has_keys = !apart || role == Role::kv;
  return {
      {queries, model.head_dim, role == Role::qkv}, {keys, model.head_dim, has_keys}, {keys, model.head_dim, has_keys}};
}

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

}  // namespace

std::int64_t ParameterTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool is_of_experts(Role role) {
  return role == Role::expert_in || role == Role::expert_out;
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

std::vector<ParameterTensor> parameter_tensors(const Transformer& model, std::int32_t layer, Role role,
                                               std::int64_t tp) {
  const std::int64_t value_dim = model.latent ? model.latent->value_head_dim : model.head_dim;
  const std::int64_t context = model.heads * value_dim;
  const std::int64_t gates = model.activation == Activation::swiglu ? 2 : 1;
  const double into_stream = kDeviation / std::sqrt(2.0 * static_cast<double>(model.layers));
  const std::string name = layer < 0 ? std::string(name_of(role)) : fmt::format("layers.{}.{}", layer, name_of(role));
  TensorList list(is_of_experts(role) ? Axis::etp : Axis::tp);
  const auto inner = [&](std::int64_t size) { return std::vector<Section>(static_cast<std::size_t>(gates), {size}); };
  switch (role) {
    case Role::embedding:
      list.vocabulary("embedding", model);
      break;
    case Role::head:
      list.vocabulary(model.tied_embeddings ? "embedding" : "head", model);
      list.last().repeated = model.tied_embeddings;
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
                  model.hidden, model.linear_bias || model.qkv_bias, kDeviation, Spread::rows,
                  head_sections(model, role, tp));
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
                  false, kDeviation, Spread::rows);
      break;
    case Role::kv_down:
      list.linear(name, model.latent->kv_rank + model.latent->rope_head_dim, model.hidden, false, kDeviation);
      break;
    case Role::kv_norm:
      list.add(name + ".weight", {model.latent->kv_rank}, Start::ones);
      break;
    case Role::kv_up:
      list.linear(name, model.heads * (model.latent->nope_head_dim + value_dim), model.latent->kv_rank, false,
                  kDeviation, Spread::rows);
      break;
    case Role::attention_out:
      list.linear(name, model.hidden, context, model.linear_bias, into_stream, Spread::columns);
      break;
    case Role::ffn_in:
      list.linear(name, gates * model.ffn, model.hidden, model.linear_bias, kDeviation, Spread::rows, inner(model.ffn));
      break;
    case Role::ffn_out:
      list.linear(name, model.hidden, model.ffn, model.linear_bias, into_stream, Spread::columns);
      break;
    case Role::router:
      list.linear(name, model.experts->count, model.hidden, model.experts->gate_bias, kDeviation);
      break;
    case Role::expert_in:
    case Role::expert_out: {
      const std::int64_t ffn = model.experts->ffn;
      for (std::int64_t e = 0; e < model.experts->count; ++e) {
        const std::string of_expert = fmt::format("layers.{}.experts.{}.", layer, e);
        if (role == Role::expert_in) {
          list.linear(of_expert + "in", gates * ffn, model.hidden, model.linear_bias, kDeviation, Spread::rows,
                      inner(ffn));
        } else {
          list.linear(of_expert + "out", model.hidden, ffn, model.linear_bias, into_stream, Spread::columns);
        }
      }
      list.share_tensors_over(Axis::ep);
      break;
    }
    case Role::shared_in:
      list.linear(name, gates * model.experts->shared_ffn, model.hidden, model.linear_bias, kDeviation, Spread::rows,
                  inner(model.experts->shared_ffn));
      if (model.experts->shared_gate) list.add(name + ".gate", {model.hidden}, Start::normal, kDeviation);
      break;
    case Role::shared_out:
      list.linear(name, model.hidden, model.experts->shared_ffn, model.linear_bias, into_stream, Spread::columns);
      break;
    default:
      WEFT_CHECK(!"a role without parameters");
  }
  return list.take();
}

}  // namespace weft
