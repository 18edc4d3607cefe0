#include "cost/made_program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.hpp"
#include "cluster/topology_way.hpp"
#include "collective/buffer_form.hpp"
#include "collective/synthesis/program_family.hpp"
#include "collective/verify/symbolic_run.hpp"
#include "cost/switch_time.hpp"

namespace weft {
namespace {

// Raised whenever the family changes, so that what older versions kept is made anew.
constexpr int kFamilyVersion = 2;

// All that the choice depends on.
std::string key_of(const ProgramQuestion& question, const Topology& wiring, const ProgramTimeOptions& options) {
  std::string key =
      fmt::format("family {}; {} of {} x {} bytes, {}; slowdown {}, reduce {}, message {} ns, loss {}, own {};",
                  kFamilyVersion, name_of(question.kind), question.elements, question.element_size.value,
                  question.in_place ? "in place" : "two buffers", options.slowdown, options.reduce.bytes_per_second,
                  options.per_message.value, options.sharing_loss, options.own_work);
  for (const TopologyVertex& vertex : wiring.vertices) {
    key += fmt::format(" {} {}", name_of(vertex.kind), vertex.node);
    if (vertex.multicasts) key += " multicasts";
    if (vertex.reduces) key += " reduces";
  }
  for (const TopologyLink& link : wiring.links) {
    key += fmt::format("; {} {} {} {}", link.from, link.to, link.bandwidth.bytes_per_second, link.latency.value);
  }
  return key;
}

std::optional<MadeProgram> stored(const std::string& key, const ProgramQuestion& question, const Cluster& cluster,
                                  const ProgramTimeOptions& options, ProgramStore& store) {
  std::optional<CarriedProgram> found = store.find(key);
  if (!found) return std::nullopt;
  const CollectiveSpec& spec = found->program.spec;
  const bool fits = spec.kind == question.kind && spec.ranks == std::ssize(question.members) &&
                    found->program.in_place == question.in_place &&
                    switch_fault(found->program, cluster, question.members).empty();
  if (!fits || !with_buffers(found->program, question.in_place).fault.empty()) return std::nullopt;
  const Nanos time = time_of(found->program, question, cluster, options);
  return MadeProgram{ProgramRef(std::move(*found)), time};
}

}  // namespace

Nanos time_of(const Program& program, const ProgramQuestion& question, const Cluster& cluster,
              const ProgramTimeOptions& options) {
  const auto lowered =
      lower(program, run_symbolically(program), even_sizes(program.spec, question.elements), question.element_size);
  if (switches_of(program) > 0) {
    return switch_program_time(program, lowered, cluster, question.members, options);
  }
  return program_time(lowered, cluster, question.members, options);
}

std::vector<MadeProgram> rank_made(const ProgramQuestion& question, const Cluster& cluster,
                                   const ProgramTimeOptions& options) {
  const Topology wiring = wiring_between(cluster, question.members);
  const auto bytes = static_cast<double>(question.elements) * static_cast<double>(question.element_size.value);
  const FamilyRequest request{.kind = question.kind, .in_place = question.in_place, .bytes = bytes};
  std::vector<FamilyMember> family = program_family(wiring, request);
  // The halves of an all_reduce gain no rate in switches (docs/collectives.md), only an all_reduce does.
  if (question.kind == Collective::all_reduce && !family.empty()) {
    std::ranges::move(switch_family(wiring, request), std::back_inserter(family));
  }
  std::vector<MadeProgram> made;
  for (FamilyMember& member : family) {
    const Nanos time = time_of(member.program, question, cluster, options);
    made.push_back(
        {ProgramRef(CarriedProgram{fmt::format("{} for {}", member.name, wiring.name), std::move(member.program)}),
         time});
  }
  std::ranges::stable_sort(made, {}, &MadeProgram::time);
  return made;
}

std::optional<MadeProgram> fastest_made(const ProgramQuestion& question, const Cluster& cluster,
                                        const ProgramTimeOptions& options, ProgramStore* store) {
  std::string key;
  if (store != nullptr) {
    key = key_of(question, wiring_between(cluster, question.members), options);
    if (auto found = stored(key, question, cluster, options, *store)) return found;
  }
  std::vector<MadeProgram> made = rank_made(question, cluster, options);
  if (made.empty()) return std::nullopt;
  MadeProgram best = std::move(made.front());
  const ProgramChoice generated = fastest_program(question, cluster, options);
  if (generated.time < best.time) {
    best = {ProgramRef(CarriedProgram{fmt::format("{} in {} part{}", name_of(generated.request.algorithm),
                                                  generated.request.parts, generated.request.parts == 1 ? "" : "s"),
                                      make_program(generated.request)}),
            generated.time};
  }
  const BufferForm proof = with_buffers(best.program->program, question.in_place);
  if (!proof.fault.empty()) fail("program {} is wrong: {}", best.program->origin, proof.fault);
  if (store != nullptr) store->keep(key, *best.program);
  return best;
}

}  // namespace weft
