#include "graph/userbuffers.hpp"

#include <cmath>

namespace weft {
namespace {

constexpr std::array<std::string_view, kLinearPasses> kPassNames{"qkv_fprop", "proj_fprop", "fc1_fprop", "fc2_fprop",
                                                                 "qkv_dgrad", "proj_dgrad", "fc1_dgrad", "fc2_dgrad",
                                                                 "qkv_wgrad", "fc1_wgrad"};
constexpr std::int32_t kDefaultBlocks = 16;

bool is_blackwell(std::string_view device) {
  return device == "b200" || device == "gb200" || device == "gb300";
}
bool is_hopper(std::string_view device) {
  return device == "h100" || device == "h200" || device == "h800";
}

// SMs by product. No SMs of a reduction of forward: it is a ring exchange.
struct Recipe {
  bool blackwell = false, rounded = false;  // the device; products in fp8
  std::int64_t hidden = 0;
  std::int32_t qkv_dgrad = 0, qkv_wgrad = 0, fc1_dgrad = 0, fc1_wgrad = 0, proj_fprop = 0, fc2_fprop = 0;
};
constexpr Recipe kRecipes[] = {
    {false, false, 8192, 4, 24, 2, 4, 24, 16}, {false, true, 8192, 4, 24, 2, 4, 0, 0},
    {false, false, 12288, 4, 4, 2, 4, 24, 0},  {false, true, 12288, 4, 4, 2, 4, 0, 0},
    {false, false, 16384, 2, 24, 2, 2, 24, 8}, {false, true, 16384, 2, 24, 2, 2, 0, 0},
    {true, false, 8192, 16, 24, 2, 4, 32, 16}, {true, true, 8192, 4, 24, 2, 4, 0, 0},
    {true, false, 12288, 4, 16, 2, 8, 0, 0},   {true, true, 12288, 4, 16, 2, 8, 0, 0},
    {true, false, 16384, 8, 24, 2, 2, 32, 8},  {true, true, 16384, 8, 32, 2, 8, 0, 0},
};

UserbufferUse reduction_of_forward(std::int32_t thread_blocks) {
  if (thread_blocks == 0) return {};
  return {UserbufferMethod::pipeline, thread_blocks};
}

}  // namespace

std::string_view name_of(LinearPass pass) {
  return kPassNames[static_cast<std::size_t>(pass)];
}

std::string_view name_of(UserbufferMethod method) {
  constexpr std::array<std::string_view, 3> kNames{"ring_exchange", "pipeline", "bulk"};
  return kNames[static_cast<std::size_t>(method)];
}

std::optional<LinearPass> linear_pass(const Operation& op) {
  if (!op.is_transfer() || op.communication->group != GroupKind::tp || !op.per_micro_batch) return std::nullopt;
  const bool forward = op.phase == Phase::forward || op.phase == Phase::recompute;
  switch (op.role) {
    case Role::attention_gather:
      if (forward) return LinearPass::qkv_fprop;
      if (op.phase == Phase::input_grad) return LinearPass::qkv_wgrad;
      if (op.phase == Phase::weight_grad) return LinearPass::qkv_dgrad;
      return std::nullopt;
    case Role::ffn_gather:
      if (forward) return LinearPass::fc1_fprop;
      if (op.phase == Phase::input_grad) return LinearPass::fc1_wgrad;
      if (op.phase == Phase::weight_grad) return LinearPass::fc1_dgrad;
      return std::nullopt;
    case Role::attention_reduce:
      if (forward) return LinearPass::proj_fprop;
      if (op.phase == Phase::input_grad) return LinearPass::proj_dgrad;
      return std::nullopt;
    case Role::ffn_reduce:
      if (forward) return LinearPass::fc2_fprop;
      if (op.phase == Phase::input_grad) return LinearPass::fc2_dgrad;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

Mover mover_of(const UserbufferUse& use) {
  return {.thread_blocks = use.thread_blocks, .copy_engine = use.method == UserbufferMethod::ring_exchange};
}

UserbufferTable default_userbuffers() {
  UserbufferTable table;  // ring exchanges
  for (const LinearPass pass : {LinearPass::proj_fprop, LinearPass::fc2_fprop}) {
    table.of(pass) = {UserbufferMethod::pipeline, kDefaultBlocks};
  }
  for (const LinearPass pass :
       {LinearPass::qkv_dgrad, LinearPass::qkv_wgrad, LinearPass::fc1_dgrad, LinearPass::fc1_wgrad}) {
    table.of(pass) = {UserbufferMethod::bulk, kDefaultBlocks};
  }
  return table;
}

UserbufferTable recipe_userbuffers(std::string_view device, ProductFormat products, std::int64_t hidden) {
  UserbufferTable table = default_userbuffers();
  if (!is_hopper(device) && !is_blackwell(device)) return table;
  const Recipe* nearest = nullptr;
  for (const Recipe& recipe : kRecipes) {
    const bool fits = recipe.blackwell == is_blackwell(device) && recipe.rounded == (products != ProductFormat::stored);
    if (!fits) continue;
    if (nearest == nullptr || std::abs(recipe.hidden - hidden) < std::abs(nearest->hidden - hidden)) nearest = &recipe;
  }
  table.of(LinearPass::qkv_dgrad).thread_blocks = nearest->qkv_dgrad;
  table.of(LinearPass::qkv_wgrad).thread_blocks = nearest->qkv_wgrad;
  table.of(LinearPass::fc1_dgrad).thread_blocks = nearest->fc1_dgrad;
  table.of(LinearPass::fc1_wgrad).thread_blocks = nearest->fc1_wgrad;
  table.of(LinearPass::proj_fprop) = reduction_of_forward(nearest->proj_fprop);
  table.of(LinearPass::fc2_fprop) = reduction_of_forward(nearest->fc2_fprop);
  return table;
}

}  // namespace weft
