#include "graph/kfac.hpp"

#include <algorithm>
#include <array>

namespace weft {
namespace {

constexpr std::array kWithCurvature{Role::qkv,        Role::attention_out, Role::ffn_in,  Role::ffn_out, Role::kv,
                                    Role::query_down, Role::query_up,      Role::kv_down, Role::kv_up};

}  // namespace

bool has_curvature(Role role) {
  return std::find(kWithCurvature.begin(), kWithCurvature.end(), role) != kWithCurvature.end();
}

bool gathers_gradient(const Operation& op) {
  return op.role == Role::grad_gather && op.communication->collective == Collective::all_gather &&
         op.communication->format.type != ElementType::u8;
}

std::int64_t kfac_turn(std::int64_t layer, Role role, std::int64_t interval) {
  const auto place = std::find(kWithCurvature.begin(), kWithCurvature.end(), role) - kWithCurvature.begin();
  return (layer + place) % interval;
}

}  // namespace weft
