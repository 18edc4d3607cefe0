#include "study/collective/sized_synthesis.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_name.hpp"
#include "cluster/presets.hpp"
#include "cost/made_program.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

constexpr Bytes kElement{1};  // sizes need not be whole numbers of anything

}  // namespace

std::string_view name_of(ProgramOrigin origin) {
  static constexpr std::string_view kNames[] = {"made", "generator", "file"};
  return enum_name(kNames, origin);
}

const SizedCandidate* SizedSynthesis::best_of(ProgramOrigin origin) const {
  const auto found = std::ranges::find(candidates, origin, &SizedCandidate::origin);
  return found == candidates.end() ? nullptr : &*found;
}

ClusterSpec cluster_on(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  ClusterSpec spec = parse_cluster(fmt::format("local:{},nic=10GB/s", devices.size()));
  spec.name = topology.name;
  // Equal runs of devices are nodes; otherwise every device is one.
  std::int64_t run = 0;
  while (run < std::ssize(devices) && topology.vertices[devices[run]].node == topology.vertices[devices[0]].node) ++run;
  bool even = std::ssize(devices) % run == 0;
  for (std::int64_t i = 0; even && i < std::ssize(devices); ++i) {
    const std::int64_t own = topology.vertices[devices[i]].node;
    const std::int64_t first = topology.vertices[devices[i / run * run]].node;
    even = own == first && (i < run || first != topology.vertices[devices[(i / run - 1) * run]].node);
  }
  if (even) {
    spec.devices_per_node = run;
    spec.nodes = std::ssize(devices) / run;
  }
  spec.topology = SharedTopology(topology);
  return spec;
}

SizedSynthesis synthesize_for_size(const Topology& topology, const SizedRequest& request) {
  const Cluster cluster(cluster_on(topology));
  ProgramQuestion question{.kind = request.kind,
                           .elements = request.size.value,
                           .element_size = kElement,
                           .in_place = request.in_place,
                           .members = {}};
  for (std::int64_t r = 0; r < cluster.device_count(); ++r)
    question.members.push_back(Rank{static_cast<std::int32_t>(r)});
  SizedSynthesis result{request.size, {}};
  for (const MadeProgram& made : rank_made(question, cluster)) {
    result.candidates.push_back({ProgramOrigin::made, made.program->origin, made.time, made.program->program});
  }
  for (const ProgramChoice& choice : rank_programs(question, cluster)) {
    const Communication named{.collective = request.kind,
                              .algorithm = choice.request.algorithm,
                              .parts = static_cast<std::int32_t>(choice.request.parts),
                              .inner = static_cast<std::int32_t>(choice.request.inner)};
    result.candidates.push_back(
        {ProgramOrigin::generator, program_in_words(named), choice.time, make_program(choice.request)});
  }
  for (const ProgramRef& file : request.files) {
    result.candidates.push_back(
        {ProgramOrigin::file, file->origin, time_of(file->program, question, cluster, {}), file->program});
  }
  std::ranges::stable_sort(result.candidates, {}, &SizedCandidate::time);
  return result;
}

}  // namespace weft
