// Small models with every switch that changes their tensors.
#pragma once

#include <vector>

#include "model/transformer.hpp"

namespace weft::test {

inline Transformer small_gpt_shape() {
  return {.name = "gpt",
          .layers = 3,
          .hidden = 48,
          .heads = 6,
          .kv_heads = 6,
          .head_dim = 8,
          .ffn = 100,
          .vocab = 300,
          .max_seq = 40,
          .latent = {},
          .experts = {}};
}

inline Transformer small_llama_shape() {
  Transformer model = small_gpt_shape();
  model.name = "llama";
  model.kv_heads = 2;
  model.norm = NormKind::rms_norm;
  model.activation = Activation::swiglu;
  model.positions = Positions::rotary;
  model.tied_embeddings = false;
  model.linear_bias = false;
  return model;
}

// Both shapes with every switch on and off, and a head size that is not hidden / heads.
inline std::vector<Transformer> trainable_shapes() {
  std::vector<Transformer> models;
  for (const Transformer& start : {small_gpt_shape(), small_llama_shape()}) {
    for (int bits = 0; bits < 64; ++bits) {
      Transformer model = start;
      model.linear_bias = (bits & 1) != 0;
      model.qkv_bias = (bits & 2) != 0;
      model.tied_embeddings = (bits & 4) != 0;
      model.activation = (bits & 8) != 0 ? Activation::swiglu : Activation::gelu;
      if ((bits & 16) != 0) model.head_dim = 10, model.kv_heads = 3;
      model.qk_norm = (bits & 32) != 0;
      models.push_back(model);
    }
  }
  return models;
}

}  // namespace weft::test
