#include "io/profile_operations_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/json/enum_names.hpp"
#include "io/plan_json_limits.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// A tick of the simulator's clock to about a day.
constexpr double kMinSeconds = 1e-9;
constexpr double kMaxSeconds = 1e5;

OpKey read_operation_key(const JsonObject& object) {
  OpKey key;
  key.kind = static_cast<OpKind>(object.one_of("kind", names_up_to(OpKind::task)));  // all but transfers
  key.phase = static_cast<Phase>(object.one_of("phase", names_up_to(Phase::optimizer)));
  key.dtype = static_cast<ElementType>(object.one_of("dtype", names_up_to(ElementType::fp8)));
  key.causal_half = object.boolean_or("causal_half", false);
  if (object.has("product")) {
    key.product = static_cast<ProductFormat>(object.one_of("product", names_up_to(ProductFormat::fp4)));
  }
  const std::vector<std::int64_t> dims = object.integers("dims", 0, kMaxPlanBytes);
  if (dims.size() != dimensions_of(key.kind)) {
    object.reject("dims", fmt::format("an array of {}, as {} has", dimensions_of(key.kind), name_of(key.kind)));
  }
  std::copy(dims.begin(), dims.end(), key.dims.begin());
  return key;
}

}  // namespace

ordered_json measured_operations_to_json(const std::map<OpKey, Nanos>& operations) {
  ordered_json list = ordered_json::array();
  for (const auto& [key, time] : operations) {
    ordered_json entry{{"kind", name_of(key.kind)}, {"phase", name_of(key.phase)}, {"dtype", name_of(key.dtype)}};
    if (key.causal_half) entry["causal_half"] = true;
    if (key.product != ProductFormat::stored) entry["product"] = name_of(key.product);
    ordered_json dims = ordered_json::array();
    for (std::size_t i = 0; i < dimensions_of(key.kind); ++i) dims.push_back(key.dims[i]);
    entry["dims"] = dims;
    entry["seconds"] = static_cast<double>(time.value) / 1e9;
    list.push_back(entry);
  }
  return list;
}

std::map<OpKey, Nanos> read_measured_operations(const JsonObject& object, const std::string& key) {
  std::map<OpKey, Nanos> operations;
  for (const JsonObject& entry : object.objects(key)) {
    entry.allow_only(std::array<std::string, 7>{"kind", "phase", "dtype", "causal_half", "product", "dims", "seconds"});
    const Nanos time = nanos_from_seconds(entry.number("seconds", kMinSeconds, kMaxSeconds));
    if (!operations.emplace(read_operation_key(entry), time).second) {
      fail("{}: this operation is listed twice, once is allowed", entry.where());
    }
  }
  return operations;
}

}  // namespace weft
