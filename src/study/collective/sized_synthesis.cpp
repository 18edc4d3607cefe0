#include "study/collective/sized_synthesis.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_name.hpp"
#include "cluster/presets.hpp"
#include "collective/synthesis/synthesized_program.hpp"
#include "cost/made_program.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

constexpr Bytes kElement{1};  // sizes need not be whole numbers of anything

std::vector<Rank> ranks_up_to(std::int64_t count) {
  std::vector<Rank> ranks;
  for (std::int64_t r = 0; r < count; ++r) ranks.push_back(Rank{static_cast<std::int32_t>(r)});
  return ranks;
}

// Trees through switches that take part, with few pieces and many, in 1 to 16 parts. A switch passes a message on when
// all of it is there; real ones do so at once, so small buffers may be faster than is said here.
void add_in_network(const Topology& topology, const SizedRequest& request, ProgramQuestion question,
                    std::vector<SizedCandidate>& candidates) {
  constexpr double kLeastMessage = 512;  // bytes; more parts cost more latency than they save
  for (const std::int64_t pieces : {1, 64}) {
    for (const std::int64_t parts : {1, 2, 4, 8, 16}) {
      Synthesis made = synthesize(topology, {request.kind, request.in_place, parts, pieces, true});
      const std::int64_t all = made.program.spec.pieces;
      if (made.switches.empty()) return;
      if (parts > 1 && static_cast<double>(request.size.value) / static_cast<double>(all) < kLeastMessage) break;
      const Cluster cluster(cluster_on(made.wiring));
      question.members = ranks_up_to(std::ssize(made.program.ranks));
      const Nanos time = time_of(made.program, question, cluster, {});
      candidates.push_back({ProgramOrigin::in_network,
                            fmt::format("{} pieces through {} switch{} in {} part{}", all / parts, made.switches.size(),
                                        made.switches.size() == 1 ? "" : "es", parts, parts == 1 ? "" : "s"),
                            time, std::move(made.program)});
    }
  }
}

}  // namespace

std::string_view name_of(ProgramOrigin origin) {
  static constexpr std::string_view kNames[] = {"made", "generator", "file", "in_network"};
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
  question.members = ranks_up_to(cluster.device_count());
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
  if (request.in_network) add_in_network(topology, request, question, result.candidates);
  std::ranges::stable_sort(result.candidates, {}, &SizedCandidate::time);
  return result;
}

}  // namespace weft
