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

// For the parameters that make queries, keys and values.
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

// The tensors of one role. Each part of a model has a switch of its own.
class RoleTensors {
 public:
  RoleTensors(const Transformer& model, std::int32_t layer, Role role, std::int64_t tp)
      : model_(model),
        layer_(layer),
        role_(role),
        tp_(tp),
        name_(layer < 0 ? std::string(name_of(role)) : fmt::format("layers.{}.{}", layer, name_of(role))),
        into_stream_(kDeviation / std::sqrt(2.0 * static_cast<double>(model.layers))),
        gates_(model.activation == Activation::swiglu ? 2 : 1),
        list_(is_of_experts(role) ? Axis::etp : Axis::tp) {}

  std::vector<ParameterTensor> take() {
    WEFT_CHECK(add_of_norms_and_ends() || add_of_attention() || add_of_feed_forward());
    return list_.take();
  }

 private:
  std::vector<Section> inner(std::int64_t size) const {
    return std::vector<Section>(static_cast<std::size_t>(gates_), {size});
  }

  bool add_of_norms_and_ends() {
    switch (role_) {
      case Role::embedding:
        list_.vocabulary("embedding", model_);
        return true;
      case Role::head:
        list_.vocabulary(model_.tied_embeddings ? "embedding" : "head", model_);
        list_.last().repeated = model_.tied_embeddings;
        return true;
      case Role::positions:
        list_.add("positions.weight", {model_.max_seq, model_.hidden}, Start::normal, kDeviation);
        return true;
      case Role::attention_norm:
      case Role::ffn_norm:
      case Role::final_norm:
        list_.norm(name_, model_);
        return true;
      default:
        return false;
    }
  }

  bool add_of_attention() {
    const std::int64_t value_dim = model_.latent ? model_.latent->value_head_dim : model_.head_dim;
    switch (role_) {
      case Role::qkv:
      case Role::kv:  // of the same tensor
        list_.linear(fmt::format("layers.{}.qkv", layer_), (model_.heads + 2 * model_.kv_heads) * model_.head_dim,
                     model_.hidden, model_.linear_bias || model_.qkv_bias, kDeviation, Spread::rows,
                     head_sections(model_, role_, tp_));
        return true;
      case Role::qk_norm:
        list_.add(fmt::format("layers.{}.q_norm.weight", layer_), {model_.head_dim}, Start::ones);
        list_.add(fmt::format("layers.{}.k_norm.weight", layer_), {model_.head_dim}, Start::ones);
        return true;
      case Role::query_down:
        list_.linear(name_, model_.latent->q_rank, model_.hidden, false, kDeviation);
        return true;
      case Role::query_norm:
        list_.add(name_ + ".weight", {model_.latent->q_rank}, Start::ones);
        return true;
      case Role::query_up:
        list_.linear(name_, model_.heads * model_.head_dim,
                     model_.latent->q_rank > 0 ? model_.latent->q_rank : model_.hidden, false, kDeviation,
                     Spread::rows);
        return true;
      case Role::kv_down:
        list_.linear(name_, model_.latent->kv_rank + model_.latent->rope_head_dim, model_.hidden, false, kDeviation);
        return true;
      case Role::kv_norm:
        list_.add(name_ + ".weight", {model_.latent->kv_rank}, Start::ones);
        return true;
      case Role::kv_up:
        list_.linear(name_, model_.heads * (model_.latent->nope_head_dim + value_dim), model_.latent->kv_rank, false,
                     kDeviation, Spread::rows);
        return true;
      case Role::attention_out:
        list_.linear(name_, model_.hidden, model_.heads * value_dim, model_.linear_bias, into_stream_, Spread::columns);
        return true;
      default:
        return false;
    }
  }

  bool add_of_feed_forward() {
    switch (role_) {
      case Role::ffn_in:
        list_.linear(name_, gates_ * model_.ffn, model_.hidden, model_.linear_bias, kDeviation, Spread::rows,
                     inner(model_.ffn));
        return true;
      case Role::ffn_out:
        list_.linear(name_, model_.hidden, model_.ffn, model_.linear_bias, into_stream_, Spread::columns);
        return true;
      case Role::router:
        list_.linear(name_, model_.experts->count, model_.hidden, model_.experts->gate_bias, kDeviation);
        return true;
      case Role::expert_in:
      case Role::expert_out: {
        const std::int64_t ffn = model_.experts->ffn;
        for (std::int64_t e = 0; e < model_.experts->count; ++e) {
          const std::string of_expert = fmt::format("layers.{}.experts.{}.", layer_, e);
          if (role_ == Role::expert_in) {
            list_.linear(of_expert + "in", gates_ * ffn, model_.hidden, model_.linear_bias, kDeviation, Spread::rows,
                         inner(ffn));
          } else {
            list_.linear(of_expert + "out", model_.hidden, ffn, model_.linear_bias, into_stream_, Spread::columns);
          }
        }
        list_.share_tensors_over(Axis::ep);
        return true;
      }
      case Role::shared_in:
        list_.linear(name_, gates_ * model_.experts->shared_ffn, model_.hidden, model_.linear_bias, kDeviation,
                     Spread::rows, inner(model_.experts->shared_ffn));
        if (model_.experts->shared_gate) list_.add(name_ + ".gate", {model_.hidden}, Start::normal, kDeviation);
        return true;
      case Role::shared_out:
        list_.linear(name_, model_.hidden, model_.experts->shared_ffn, model_.linear_bias, into_stream_,
                     Spread::columns);
        return true;
      default:
        return false;
    }
  }

  const Transformer& model_;
  std::int32_t layer_;
  Role role_;
  std::int64_t tp_;
  std::string name_;
  double into_stream_;
  std::int64_t gates_;
  TensorList list_;
};

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
  return RoleTensors(model, layer, role, tp).take();
}

}  // namespace weft
