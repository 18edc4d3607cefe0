// Reader and writer of a model's shape; field names are those of Transformer.
#include "io/model_json.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// In the order of the enums.
std::vector<std::string> norm_names() {
  return {"layer_norm", "rms_norm"};
}
std::vector<std::string> activation_names() {
  return {"gelu", "swiglu"};
}
std::vector<std::string> position_names() {
  return {"learned", "rotary"};
}
std::vector<std::string> gate_order_names() {
  return {"position", "gshard", "probs"};
}

LatentAttention read_latent(const JsonObject& object) {
  object.allow_only(std::vector<std::string>{"q_rank", "kv_rank", "nope_head_dim", "rope_head_dim", "value_head_dim"});
  return {.q_rank = object.integer("q_rank", 0),
          .kv_rank = object.integer("kv_rank", 1),
          .nope_head_dim = object.integer("nope_head_dim", 1),
          .rope_head_dim = object.integer("rope_head_dim", 1),
          .value_head_dim = object.integer("value_head_dim", 1)};
}

Experts read_experts(const JsonObject& object) {
  object.allow_only(std::vector<std::string>{"count", "top_k", "ffn", "shared_ffn", "capacity_factor", "dense_first",
                                             "every", "gate_bias", "shared_gate", "gate_order", "renormalise",
                                             "aux_loss_coeff", "router_groups", "router_group_topk"});
  const Experts fallback;
  return {.count = object.integer("count", 1),
          .top_k = object.integer("top_k", 1),
          .ffn = object.integer("ffn", 1),
          .shared_ffn = object.integer_or("shared_ffn", fallback.shared_ffn, 0),
          .capacity_factor = object.number_or("capacity_factor", fallback.capacity_factor, 0),
          .dense_first = object.integer_or("dense_first", fallback.dense_first, 0),
          .every = object.integer_or("every", fallback.every, 1),
          .gate_bias = object.boolean_or("gate_bias", fallback.gate_bias),
          .shared_gate = object.boolean_or("shared_gate", fallback.shared_gate),
          .gate_order = object.has("gate_order")
                            ? static_cast<GateOrder>(object.one_of("gate_order", gate_order_names()))
                            : fallback.gate_order,
          .renormalise = object.boolean_or("renormalise", fallback.renormalise),
          .aux_loss_coeff = object.number_or("aux_loss_coeff", fallback.aux_loss_coeff, 0),
          .router_groups = object.integer_or("router_groups", fallback.router_groups, 1),
          .router_group_topk = object.integer_or("router_group_topk", fallback.router_group_topk, 1)};
}

DropoutRates read_dropout(const JsonObject& object) {
  object.allow_only(std::vector<std::string>{"embedding", "attention", "hidden"});
  return {.embedding = object.number("embedding", 0, 1),
          .attention = object.number("attention", 0, 1),
          .hidden = object.number("hidden", 0, 1)};
}

}  // namespace

ordered_json model_to_json(const Transformer& model) {
  ordered_json result{{"name", model.name},
                      {"layers", model.layers},
                      {"hidden", model.hidden},
                      {"heads", model.heads},
                      {"kv_heads", model.kv_heads},
                      {"head_dim", model.head_dim},
                      {"ffn", model.ffn},
                      {"vocab", model.vocab},
                      {"max_seq", model.max_seq},
                      {"norm", norm_names()[static_cast<std::size_t>(model.norm)]},
                      {"activation", activation_names()[static_cast<std::size_t>(model.activation)]},
                      {"positions", position_names()[static_cast<std::size_t>(model.positions)]},
                      {"tied_embeddings", model.tied_embeddings},
                      {"linear_bias", model.linear_bias},
                      {"qkv_bias", model.qkv_bias},
                      {"qk_norm", model.qk_norm}};
  if (model.latent) {
    result["latent"] = {{"q_rank", model.latent->q_rank},
                        {"kv_rank", model.latent->kv_rank},
                        {"nope_head_dim", model.latent->nope_head_dim},
                        {"rope_head_dim", model.latent->rope_head_dim},
                        {"value_head_dim", model.latent->value_head_dim}};
  }
  if (model.experts) {
    result["experts"] = {{"count", model.experts->count},
                         {"top_k", model.experts->top_k},
                         {"ffn", model.experts->ffn},
                         {"shared_ffn", model.experts->shared_ffn},
                         {"capacity_factor", model.experts->capacity_factor},
                         {"dense_first", model.experts->dense_first},
                         {"every", model.experts->every},
                         {"gate_bias", model.experts->gate_bias},
                         {"shared_gate", model.experts->shared_gate},
                         {"gate_order", gate_order_names()[static_cast<std::size_t>(model.experts->gate_order)]},
                         {"renormalise", model.experts->renormalise},
                         {"aux_loss_coeff", model.experts->aux_loss_coeff}};
    if (model.experts->router_groups > 1) {
      result["experts"]["router_groups"] = model.experts->router_groups;
      result["experts"]["router_group_topk"] = model.experts->router_group_topk;
    }
  }
  if (model.dropout != DropoutRates{}) {  // files older than the key have none
    result["dropout"] = {{"embedding", model.dropout.embedding},
                         {"attention", model.dropout.attention},
                         {"hidden", model.dropout.hidden}};
  }
  return result;
}

Transformer model_from_json(const json& value, const std::string& where) {
  const JsonObject object(value, where);
  object.allow_only(std::vector<std::string>{"name", "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn",
                                             "vocab", "max_seq", "norm", "activation", "positions", "tied_embeddings",
                                             "linear_bias", "qkv_bias", "qk_norm", "latent", "experts", "dropout"});
  Transformer model;
  model.name = object.string("name");
  model.layers = object.integer("layers", 1);
  model.hidden = object.integer("hidden", 1);
  model.heads = object.integer("heads", 1);
  model.kv_heads = object.integer_or("kv_heads", model.heads, 1);
  model.head_dim = object.integer("head_dim", 1);
  model.ffn = object.integer("ffn", 1);
  model.vocab = object.integer("vocab", 1);
  model.max_seq = object.integer("max_seq", 1);
  model.norm = static_cast<NormKind>(object.one_of("norm", norm_names()));
  model.activation = static_cast<Activation>(object.one_of("activation", activation_names()));
  model.positions = static_cast<Positions>(object.one_of("positions", position_names()));
  model.tied_embeddings = object.boolean("tied_embeddings");
  model.linear_bias = object.boolean("linear_bias");
  model.qkv_bias = object.boolean_or("qkv_bias", false);
  model.qk_norm = object.boolean_or("qk_norm", false);
  if (object.has("latent")) model.latent = read_latent(object.object("latent"));
  if (object.has("experts")) model.experts = read_experts(object.object("experts"));
  if (object.has("dropout")) model.dropout = read_dropout(object.object("dropout"));
  try {
    validate(model);
  } catch (const Error& error) {
    fail("{}: {}", where, error.what());
  }
  return model;
}

}  // namespace weft
