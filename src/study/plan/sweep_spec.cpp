#include "study/plan/sweep_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cluster/device.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

enum class ValueType { integer, number, choice, list, policy, bandwidth };

struct KeyRule {
  const char* name;
  ValueType type;
  std::int64_t min = 1;
  std::vector<std::string> choices = {};
  bool of_cluster = false;  // a key of the cluster's text, no flag
};

constexpr std::int64_t kMaxNumber = 1'000'000'000;
constexpr std::size_t kMaxCombinations = 1'000'000;

const std::vector<KeyRule>& rules() {
  static const std::vector<KeyRule> kRules{
      {"tp", ValueType::integer},
      {"pp", ValueType::integer},
      {"vpp", ValueType::integer},
      {"dp", ValueType::integer},
      {"cp", ValueType::integer},
      {"ep", ValueType::integer},
      {"etp", ValueType::integer},
      {"micro-batch", ValueType::integer},
      {"global-batch", ValueType::integer},
      {"seq", ValueType::integer},
      {"zero", ValueType::integer, 0},
      {"zero-shards", ValueType::integer},
      {"zero-secondary", ValueType::integer},
      {"layer-group", ValueType::integer},
      {"zero-replicas", ValueType::integer},
      {"reduce-every", ValueType::integer},
      {"sequence-parallel", ValueType::choice, 0, {"true", "false"}},
      {"recompute", ValueType::choice, 0, {"none", "selective", "full"}},
      {"attention", ValueType::choice, 0, {"flash", "unfused"}},
      {"precision", ValueType::choice, 0, {"fp32", "bf16", "fp16"}},
      {"grad-dtype", ValueType::choice, 0, {"fp32", "bf16", "fp16"}},
      {"clip-grad", ValueType::number},
      {"schedule", ValueType::choice, 0, schedule_names()},
      {"warm-up-depth", ValueType::integer},
      {"kfac-interval", ValueType::integer},
      {"stage-layers", ValueType::list},
      {"recompute-layers", ValueType::list},
      {"slices", ValueType::list},
      {"mesh-order", ValueType::list},
      {"memory", ValueType::number},
      {"policy", ValueType::policy},
      {"gpus", ValueType::integer, 1, {}, true},
      {"nvlink", ValueType::bandwidth, 0, {}, true},
      {"nic", ValueType::bandwidth, 0, {}, true},
      {"device", ValueType::choice, 0, device_names(), true},
  };
  return kRules;
}

const KeyRule& rule_of(std::string_view name) {
  const auto found = std::find_if(rules().begin(), rules().end(), [&](const KeyRule& r) { return r.name == name; });
  if (found == rules().end()) fail("--sweep: key '{}' cannot be varied{}", name, suggestion(name, sweep_key_names()));
  return *found;
}

void require_number(const std::string& text, const std::string& what) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, number);
  if (status != std::errc{} || stop != end || !(number >= 0)) fail("{} '{}': is not a number from 0", what, text);
}

// "1..4" as 1, 2, 3, 4; anything else is one value.
void add_integers(SweepKey& key, const std::string& text, std::int64_t min) {
  const std::string what = fmt::format("--sweep: key '{}': value", key.name);
  const auto dots = text.find("..");
  const std::int64_t first = parse_integer(text.substr(0, dots), what);
  const std::int64_t last = dots == std::string::npos ? first : parse_integer(text.substr(dots + 2), what);
  if (last < first) fail("{} '{}': a range goes upwards", what, text);
  if (first < min || last > kMaxNumber) fail("{} '{}': is not in {}..{}", what, text, min, kMaxNumber);
  if (last - first >= static_cast<std::int64_t>(kMaxCombinations)) {
    fail("{} '{}': has more than {} values", what, text, kMaxCombinations);
  }
  for (std::int64_t n = first; n <= last; ++n) key.values.push_back(std::to_string(n));
}

void add_value(SweepKey& key, const std::string& text, const KeyRule& rule) {
  if (text.empty()) fail("--sweep: key '{}': a value is empty", key.name);
  if (rule.type == ValueType::integer) {
    add_integers(key, text, rule.min);
    return;
  }
  if (!rule.choices.empty() && std::find(rule.choices.begin(), rule.choices.end(), text) == rule.choices.end()) {
    fail("--sweep: key '{}': value '{}' is not one of {}", key.name, text, fmt::join(rule.choices, ", "));
  }
  const std::string what = fmt::format("--sweep: key '{}': value", key.name);
  if (rule.type == ValueType::policy) require_policy(text);
  if (rule.type == ValueType::number) require_number(text, what);
  if (rule.type == ValueType::bandwidth) parse_bandwidth(text, what);
  key.values.push_back(text);
}

SweepKey parse_key(const std::string& item) {
  const auto equals = item.find('=');
  if (equals == std::string::npos || equals == 0) fail("--sweep: '{}' is not key=value,value,...", item);
  SweepKey key;
  key.name = item.substr(0, equals);
  const KeyRule& rule = rule_of(key.name);
  // Values that are lists themselves keep their commas.
  const char separator = rule.type == ValueType::list ? '|' : ',';
  for (const std::string& value : split(item.substr(equals + 1), separator)) add_value(key, value, rule);
  for (std::size_t i = 0; i < key.values.size(); ++i) {
    if (std::find(key.values.begin(), key.values.begin() + static_cast<std::ptrdiff_t>(i), key.values[i]) !=
        key.values.begin() + static_cast<std::ptrdiff_t>(i)) {
      fail("--sweep: key '{}': value '{}' is there twice", key.name, key.values[i]);
    }
  }
  return key;
}

}  // namespace

std::size_t SweepSpec::combinations() const {
  std::size_t product = 1;
  for (const SweepKey& key : keys) product *= key.values.size();
  return product;
}

SweepChoice SweepSpec::choice(std::size_t i) const {
  SweepChoice result(keys.size());
  for (std::size_t k = keys.size(); k-- > 0;) {
    result[k] = i % keys[k].values.size();
    i /= keys[k].values.size();
  }
  return result;
}

std::size_t SweepSpec::find(std::string_view name) const {
  return std::find_if(keys.begin(), keys.end(), [&](const SweepKey& key) { return key.name == name; }) - keys.begin();
}

SweepSpec parse_sweep(std::string_view text) {
  SweepSpec spec;
  std::vector<std::string> items = split(text, ';');
  if (items.size() > 1 && items.back().empty()) items.pop_back();  // a ';' at the end
  for (const std::string& item : items) {
    SweepKey key = parse_key(item);
    if (spec.find(key.name) != spec.keys.size()) fail("--sweep: key '{}' is there twice", key.name);
    spec.keys.push_back(std::move(key));
    // Checked at every key, so that the product itself never overflows.
    if (spec.combinations() > kMaxCombinations) {
      fail("--sweep: makes {} combinations or more; at most {} are tried", spec.combinations(), kMaxCombinations);
    }
  }
  return spec;
}

std::vector<std::string> sweep_key_names() {
  std::vector<std::string> names;
  for (const KeyRule& rule : rules()) names.emplace_back(rule.name);
  return names;
}

bool is_cluster_key(std::string_view name) {
  return rule_of(name).of_cluster;
}

std::string with_cluster_key(const std::string& cluster, const std::string& key, const std::string& value) {
  std::vector<std::string> items = split(cluster, ',');
  std::erase_if(items, [&](const std::string& item) { return item.starts_with(key + "="); });
  items.push_back(key + "=" + value);
  return fmt::format("{}", fmt::join(items, ","));
}

}  // namespace weft
