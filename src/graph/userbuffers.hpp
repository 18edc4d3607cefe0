// How Transformer Engine's userbuffers (Megatron's --tp-comm-overlap) move what tensor parallelism communicates beside
// the products of a layer, product by product, and how many compute units (SMs) that takes. Read in
// NVIDIA/TransformerEngine d0067d0d: `initialize_ub` in pytorch/module/base.py, common/comm_gemm_overlap.
//   ring_exchange: copy engines carry every step (`use_ce`), and a kernel of one thread block signals its end. A
//     reduction sends the summands so, and a kernel adds them up at the end.
//   pipeline: a kernel of num_sm thread blocks reduces every part of the product's output.
//   bulk: a kernel of num_sm thread blocks runs beside a product that does not need the transfer.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "graph/step_graph.hpp"

namespace weft {

// The products of a layer that transfers of tensor parallelism run with, by the names of Transformer Engine: the four
// linear layers, in forward (fprop) and for the gradients of their inputs (dgrad) and weights (wgrad).
enum class LinearPass : std::uint8_t {
  qkv_fprop,
  proj_fprop,
  fc1_fprop,
  fc2_fprop,
  qkv_dgrad,
  proj_dgrad,
  fc1_dgrad,
  fc2_dgrad,
  qkv_wgrad,
  fc1_wgrad
};
inline constexpr std::size_t kLinearPasses = 10;
std::string_view name_of(LinearPass pass);
// Returns the product that a transfer of a layer runs with: gathers of backward that weight gradients read run beside
// the gradient of the input, and reductions of that gradient beside the weight gradient. Nothing for other operations.
std::optional<LinearPass> linear_pass(const Operation& operation);

enum class UserbufferMethod : std::uint8_t { ring_exchange, pipeline, bulk };
std::string_view name_of(UserbufferMethod method);

struct UserbufferUse {
  UserbufferMethod method = UserbufferMethod::ring_exchange;
  std::int32_t thread_blocks = 1;  // Transformer Engine's num_sm
  friend bool operator==(const UserbufferUse&, const UserbufferUse&) = default;
};
// Returns who moves the bytes of a transfer so.
Mover mover_of(const UserbufferUse& use);

struct UserbufferTable {
  std::array<UserbufferUse, kLinearPasses> uses;
  const UserbufferUse& of(LinearPass pass) const { return uses[static_cast<std::size_t>(pass)]; }
  UserbufferUse& of(LinearPass pass) { return uses[static_cast<std::size_t>(pass)]; }
  friend bool operator==(const UserbufferTable&, const UserbufferTable&) = default;
};
// What Transformer Engine takes where its user says nothing: ring exchanges of all gathers but the bulk ones, 16 SMs
// for what is pipelined or in bulk.
UserbufferTable default_userbuffers();
// What NVIDIA's recipes take for the model of the nearest hidden size: NVIDIA-NeMo/Megatron-Bridge 0685ff5d,
// src/megatron/bridge/training/comm_overlap.py, for GPT-3 175B, Llama 3 70B and Llama 3.1 405B in 16 bits and in fp8.
// Devices before Hopper have the default.
UserbufferTable recipe_userbuffers(std::string_view device, ProductFormat products, std::int64_t hidden);

// Which table a user wishes.
enum class UserbufferSource : std::uint8_t { defaults, recipes, own };
struct UserbufferWish {
  UserbufferSource source = UserbufferSource::defaults;
  UserbufferTable own = default_userbuffers();  // where it is the source
  friend bool operator==(const UserbufferWish&, const UserbufferWish&) = default;
};

}  // namespace weft
