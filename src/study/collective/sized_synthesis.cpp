#include "study/collective/sized_synthesis.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_name.hpp"
#include "base/error.hpp"
#include "collective/synthesis/program_family.hpp"
#include "collective/synthesis/sketch_program.hpp"
#include "collective/synthesis/switch_ranks.hpp"
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

void add_in_network(const Topology& topology, const SizedRequest& request, const Cluster& cluster,
                    const ProgramQuestion& question, std::vector<SizedCandidate>& candidates) {
  if (!has_program_in_switches(topology, request.kind)) {
    fail("topology '{}': has no switch that {} (in its file: \"multicasts\" and \"reduces\")", topology.name,
         what_switches_must_do(request.kind));
  }
  const auto bytes = static_cast<double>(request.size.value);
  for (FamilyMember& member : switch_family(topology, {request.kind, request.in_place, bytes})) {
    const Nanos time = time_of(member.program, question, cluster, {});
    candidates.push_back({ProgramOrigin::in_network, member.name, time, std::move(member.program)});
  }
}

void add_sketch(const Topology& topology, const SizedRequest& request, const Sketch& sketch, const Cluster& cluster,
                const ProgramQuestion& question, SizedSynthesis& result) {
  const FamilyRequest family{request.kind, request.in_place, static_cast<double>(request.size.value)};
  for (const bool blocking : {true, false}) {
    Sketch own = sketch;
    own.blocking_latency = blocking;
    if (!blocking) own.name += ", latencies that do not block";
    for (FamilyMember& member : sketch_family(topology, family, own, request.solver_seconds)) {
      const Nanos time = time_of(member.program, question, cluster, {});
      result.candidates.push_back({ProgramOrigin::sketch, member.name, time, std::move(member.program)});
    }
  }
}

}  // namespace

std::string_view name_of(ProgramOrigin origin) {
  static constexpr std::string_view kNames[] = {"made", "generator", "file", "in_network", "sketch"};
  return enum_name(kNames, origin);
}

const SizedCandidate* SizedSynthesis::best_of(ProgramOrigin origin) const {
  const auto found = std::ranges::find(candidates, origin, &SizedCandidate::origin);
  return found == candidates.end() ? nullptr : &*found;
}

SizedSynthesis synthesize_for_size(const Topology& topology, const SizedRequest& request) {
  // Programs of switches are candidates of their own.
  const Cluster cluster(cluster_on(without_switch_abilities(topology)));
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
  for (const Sketch& sketch : request.sketches) add_sketch(topology, request, sketch, cluster, question, result);
  if (request.in_network) {
    add_in_network(topology, request, Cluster(cluster_on(topology)), question, result.candidates);
  }
  std::ranges::stable_sort(result.candidates, {}, &SizedCandidate::time);
  return result;
}

}  // namespace weft
