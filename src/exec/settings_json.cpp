#include "exec/settings_json.hpp"

#include <nlohmann/json.hpp>

namespace weft {

using nlohmann::ordered_json;

namespace {

std::string_view order_in_words(GateOrder order) {
  return order == GateOrder::position ? "position" : order == GateOrder::gshard ? "gshard" : "probs";
}

ordered_json experts_to_json(const Experts& experts) {
  return {{"count", experts.count},
          {"top_k", experts.top_k},
          {"ffn", experts.ffn},
          {"shared_ffn", experts.shared_ffn},
          {"capacity_factor", experts.capacity_factor},
          {"dense_first", experts.dense_first},
          {"every", experts.every},
          {"gate_order", order_in_words(experts.gate_order)},
          {"renormalise", experts.renormalise},
          {"aux_loss_coeff", experts.aux_loss_coeff}};
}

}  // namespace

ordered_json shape_to_json(const Transformer& model) {
  ordered_json json = {{"name", model.name},
                       {"layers", model.layers},
                       {"hidden", model.hidden},
                       {"heads", model.heads},
                       {"kv_heads", model.kv_heads},
                       {"head_dim", model.head_dim},
                       {"ffn", model.ffn},
                       {"vocab", model.vocab},
                       {"max_seq", model.max_seq},
                       {"norm", model.norm == NormKind::layer_norm ? "layer_norm" : "rms_norm"},
                       {"activation", model.activation == Activation::gelu ? "gelu" : "swiglu"},
                       {"positions", model.positions == Positions::learned ? "learned" : "rotary"},
                       {"tied_embeddings", model.tied_embeddings},
                       {"linear_bias", model.linear_bias},
                       {"qkv_bias", model.qkv_bias}};
  // Named only where there is one: checkpoints from before it existed stay what they are.
  if (model.qk_norm) json["qk_norm"] = true;
  if (model.latent) {
    json["latent"] = {{"q_rank", model.latent->q_rank},
                      {"kv_rank", model.latent->kv_rank},
                      {"nope_head_dim", model.latent->nope_head_dim},
                      {"rope_head_dim", model.latent->rope_head_dim},
                      {"value_head_dim", model.latent->value_head_dim}};
  }
  if (model.experts) json["experts"] = experts_to_json(*model.experts);
  return json;
}

ordered_json dropout_to_json(const Transformer& model, const Layout& layout) {
  if (!has_dropout(model, layout)) return {};
  return {
      {"embedding", model.dropout.embedding}, {"attention", model.dropout.attention}, {"hidden", model.dropout.hidden}};
}

ordered_json optimizer_to_json(const OptimizerSettings& optimizer) {
  if (const auto* both = std::get_if<KfacWithAdam>(&optimizer)) {
    ordered_json json = optimizer_to_json(both->adam);
    json["name"] = "kfac";
    json["kfac"] = {{"lr", both->kfac.learning_rate},
                    {"momentum", both->kfac.momentum},
                    {"decay", both->kfac.decay},
                    {"damping", both->kfac.damping},
                    {"interval", both->interval}};
    return json;
  }
  if (const auto* adam = std::get_if<AdamSettings>(&optimizer)) {
    return {{"name", "adam"},
            {"lr", adam->learning_rate},
            {"betas", {adam->beta1, adam->beta2}},
            {"eps", adam->epsilon},
            {"weight_decay", adam->weight_decay}};
  }
  const auto& sgd = std::get<SgdSettings>(optimizer);
  return {{"name", "sgd"}, {"lr", sgd.learning_rate}, {"momentum", sgd.momentum}, {"weight_decay", sgd.weight_decay}};
}

ordered_json schedule_to_json(const LearningRateSchedule& schedule) {
  ordered_json json = {{"style", name_of(schedule.style)}, {"warmup", schedule.warmup}};
  if (schedule.style == DecayStyle::constant) return json;
  json["min_lr"] = schedule.minimum;
  json["decay_steps"] = schedule.decay_steps;
  return json;
}

}  // namespace weft
