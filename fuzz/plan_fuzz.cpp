// Bytes as a plan file: the reader answers with a plan or an Error, never anything else; what it accepts is
// written so that it reads back the same, the verifier has an answer for it, and what the verifier accepts
// can be simulated.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "io/cluster_json.hpp"
#include "io/json/json_reader.hpp"
#include "io/plan_json.hpp"
#include "plan/verify/verify_plan.hpp"
#include "sim/simulate_plan.hpp"

namespace {

// Large plans are legal and only slow the search for mistakes.
constexpr std::int64_t kMaxDevices = 64;
constexpr std::int64_t kMaxInstances = 20'000;

bool is_small(const std::string& text) {
  const nlohmann::json file = weft::parse_json(text, "fuzz.json");
  if (!file.is_object() || !file.contains("cluster")) return true;
  const weft::ClusterSpec cluster = weft::cluster_from_json(file.at("cluster"), "fuzz.json: cluster");
  return cluster.nodes * cluster.devices_per_node <= kMaxDevices;
}

std::string text_of(const weft::Plan& plan) {
  std::ostringstream out;
  weft::write_plan_json(out, plan);
  return out.str();
}

void exercise(const weft::Plan& plan) {
  const std::string text = text_of(plan);
  if (text_of(weft::read_plan_json(text, "written")) != text) std::abort();
  if (static_cast<std::int64_t>(plan.graph.operations.size()) * plan.graph.micro_batches > kMaxInstances) return;
  if (weft::verify_plan(plan)) return;
  const weft::Cluster cluster(plan.cluster);
  static_cast<void>(
      weft::simulate_plan(weft::WholePlan(plan), weft::CostModel(plan.graph, cluster, weft::default_profile())));
}

using nlohmann::json;
using Random = std::minstd_rand;

std::size_t below(Random& random, std::size_t count) {
  return random() % count;
}

json& child(json& parent, std::size_t index) {
  return *std::next(parent.begin(), static_cast<std::ptrdiff_t>(index));
}

// Mostly a number or a name far down, sometimes a list on the way there.
json& any_node(json& root, Random& random) {
  json* node = &root;
  while (node->is_structured() && !node->empty() && below(random, 16) != 0) {
    node = &child(*node, below(random, node->size()));
  }
  return *node;
}

void change_list(json& list, Random& random) {
  if (list.empty()) return;
  const auto at = static_cast<json::difference_type>(below(random, list.size()));
  const std::size_t other = below(random, list.size());
  switch (below(random, 3)) {
    case 0:
      list.erase(list.begin() + at);
      break;
    case 1:
      list.push_back(list[other]);
      break;
    default:
      std::swap(list[static_cast<std::size_t>(at)], list[other]);
  }
}

void change(json& root, Random& random) {
  json& node = any_node(root, random);
  if (node.is_boolean()) {
    node = !node.get<bool>();
  } else if (node.is_number_integer() && below(random, 2) == 0) {
    constexpr std::int64_t kNumbers[] = {-1, 0, 1, 2, 3, 256, 65'536, std::int64_t{1} << 31, std::int64_t{1} << 61};
    node = kNumbers[below(random, std::size(kNumbers))];
  } else if (node.is_array() && below(random, 4) != 0) {
    change_list(node, random);
  } else if (node.is_object() && !node.empty() && below(random, 4) == 0) {
    node.erase(std::next(node.begin(), static_cast<std::ptrdiff_t>(below(random, node.size()))));
  } else {
    const json other = any_node(root, random);
    if (other.type() == node.type()) node = other;
  }
}

}  // namespace

// libFuzzer's own mutation of bytes; absent where the corpus is only replayed.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t max_size);

// Changes to bytes seldom get past the JSON parser; these change what the text means.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  Random random(seed);
  json file = json::parse(data, data + size, nullptr, false);
  if (file.is_discarded() || below(random, 8) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t i = below(random, 3) + 1; i > 0; --i) change(file, random);
  const std::string text = file.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<weft::Plan> plan;
  try {
    if (is_small(text)) plan = weft::read_plan_json(text, "fuzz.json");
  } catch (const weft::Error&) {
    return -1;  // not kept: what grows from a refused file is refused as well
  }
  if (!plan) return -1;
  exercise(*plan);  // outside the catch: what the reader has accepted must not fail later
  return 0;
}
