#include "app/framework_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/inputs.hpp"
#include "cost/framework.hpp"

namespace weft {

void apply_framework_defaults(Flags& flags) {
  const auto name = flags.text("framework");
  if (!name) return;
  const Framework& framework = framework_named(*name);
  const auto set_unless_given = [&](const char* flag, const std::string& value) {
    if (!flags.given(flag)) flags.set(flag, value, fmt::format("--framework {}", framework.name));
  };
  const std::int64_t stages = flags.integer("pp", 1, INT32_MAX).value_or(1);
  if (framework.splits_sequences && flags.integer("tp", 1, INT32_MAX).value_or(1) > 1) {
    set_unless_given("sequence-parallel", "true");
  }
  if (framework.reduces_in_bf16) set_unless_given("grad-dtype", "bf16");
  if (framework.clip_grad > 0) set_unless_given("clip-grad", fmt::format("{}", framework.clip_grad));
  if (!framework.dropout && read_model(flags).positions == Positions::learned && !flags.given("dropout")) {
    set_unless_given("no-dropout", "true");
  }
  if (framework.userbuffer_recipes && flags.is_set("tp-comm-overlap")) {
    set_unless_given("tp-comm-overlap-cfg", "recipes");
  }
  if (framework.deals_layers_by_cost && stages > 1 && !flags.given("vpp")) {
    set_unless_given("stage-layers", fmt::format("{}", fmt::join(layers_by_cost(read_model(flags), stages), ",")));
  }
}

std::string framework_policy(const Flags& flags) {
  if (const auto policy = flags.text("policy")) return *policy;
  const auto name = flags.text("framework");
  return name ? std::string(framework_named(*name).policy) : "serial";
}

}  // namespace weft
