#include "study/plan/device_map_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.hpp"
#include "graph/step_graph.hpp"
#include "planner/memory_needs.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

constexpr std::int64_t kFewDevices = 64;  // up to so many a step is planned in a tenth of a second
constexpr std::int64_t kMostMaps = 512, kMostMapsOfMany = 64;
constexpr int kMostMovesOfLayers = 200;
constexpr double kDoesNotFit = 1e9;  // seconds

double step_of(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  const PlanRequest request = request_of(inputs, profile);
  const SharedGraph graph = build_step_graph(inputs.model, Cluster(inputs.cluster), inputs.layout);
  const WholePlan whole = make_whole_plan(request, graph, policy);
  double seconds = request.search.step_seconds(whole);
  for (const MemoryNeed& need : memory_needs(whole.plan(), profile)) {
    if (!need.fits()) seconds += kDoesNotFit;
  }
  return seconds;
}

bool has_unequal_devices(const ClusterSpec& spec) {
  return std::ranges::any_of(spec.overrides,
                             [&](const NodeOverride& node) { return node.device && *node.device != spec.device; });
}

// One layer at a time goes from a chunk to another, wherever it helps most, as long as it helps.
void move_layers(Inputs inputs, const Profile& profile, DeviceMapChoice& choice) {
  std::vector<std::int64_t> best = layers_per_chunk(inputs.layout, inputs.model);
  best.resize(static_cast<std::size_t>(inputs.layout.model_chunks()));
  const std::vector<std::int64_t> first = best;
  int tried = 0;
  for (bool improved = true; improved;) {
    improved = false;
    const std::vector<std::int64_t> from_here = best;
    for (std::size_t from = 0; from < from_here.size(); ++from) {
      for (std::size_t to = 0; to < from_here.size() && tried < kMostMovesOfLayers; ++to) {
        if (from == to || from_here[from] < 2) continue;
        inputs.layout.stage_layers = from_here;
        --inputs.layout.stage_layers[from];
        ++inputs.layout.stage_layers[to];
        ++tried;
        const double seconds = step_of(inputs, profile, choice.policy);
        if (seconds >= choice.step_s) continue;
        choice.step_s = seconds;
        best = inputs.layout.stage_layers;
        improved = true;
      }
    }
  }
  if (best != first) choice.stage_layers = best;
}

}  // namespace

DeviceMapChoice choose_device_map(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                  bool may_move_layers) {
  Inputs tried = inputs;
  const auto seconds = [&](const DeviceMap& map) {
    tried.cluster.device_map = map;
    return step_of(tried, profile, policy);
  };
  const std::int64_t devices = inputs.cluster.nodes * inputs.cluster.devices_per_node;
  DeviceMapChoice choice{policy, {}, {}, 0};
  choice.search = search_device_map(inputs.cluster, seconds, devices <= kFewDevices ? kMostMaps : kMostMapsOfMany);
  choice.step_s = choice.search.seconds;
  tried.cluster.device_map = choice.search.best;
  if (may_move_layers && inputs.layout.pp > 1 && has_unequal_devices(inputs.cluster)) {
    move_layers(tried, profile, choice);
  }
  return choice;
}

std::string device_map_line(const DeviceMapChoice& choice) {
  const auto words = [](double step_s) {
    return step_s >= kDoesNotFit ? std::string("a step that does not fit")
                                 : format_time(nanos_from_seconds(step_s)) + " a step";
  };
  const DeviceMapSearch& search = choice.search;
  constexpr std::size_t kShown = 16;
  const std::size_t shown = std::min(search.best.size(), kShown);
  std::string text =
      fmt::format("ranks on devices {}{}",
                  fmt::join(search.best.begin(), search.best.begin() + static_cast<std::ptrdiff_t>(shown), ","),
                  shown < search.best.size() ? ",..." : "");
  if (!choice.stage_layers.empty()) text += fmt::format(", stages of {} layers", fmt::join(choice.stage_layers, ","));
  return text + fmt::format(": {} instead of {} in rank order (predicted with {}, {} of the maps that differ)",
                            words(choice.step_s), words(search.in_rank_order), choice.policy,
                            search.all_tried ? fmt::format("all {}", search.tried) : fmt::format("{}", search.tried));
}

}  // namespace weft
