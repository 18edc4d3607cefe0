#include "app/program_inputs.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "app/cluster/topology_inputs.hpp"
#include "app/collective/program_file.hpp"
#include "app/files.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "collective/synthesis/switch_ranks.hpp"
#include "graph/transfer_program.hpp"
#include "io/program_folder.hpp"

namespace weft {
namespace {

constexpr Collective kCarried[] = {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
                                   Collective::all_to_all};

ProgramRef read_program(const std::string& entry) {
  const std::size_t equals = entry.find('=');
  if (equals == std::string::npos) fail("--program {}: is not COLLECTIVE=FILE, e.g. all_reduce=ring.xml", entry);
  const std::string kind = entry.substr(0, equals), file = entry.substr(equals + 1);
  const auto known = std::ranges::find_if(kCarried, [&](Collective c) { return name_of(c) == kind; });
  if (known == std::end(kCarried)) {
    fail("--program {}: '{}' is not all_reduce, reduce_scatter, all_gather or all_to_all", entry, kind);
  }
  Program program = read_program_file(file);
  if (program.spec.kind != *known) {
    fail("--program {}: {} is a program for {}", entry, file, name_of(program.spec.kind));
  }
  if (const std::string fault = carried_program_fault(program); !fault.empty()) {
    fail("--program {}: {} is not taken: {}", entry, file, fault);
  }
  return ProgramRef(CarriedProgram{std::filesystem::path(file).filename().string(), std::move(program)});
}

}  // namespace

void declare_program_flags(Flags& flags, const std::string& group) {
  flags.value(
      "program", "COLLECTIVE=FILE,...",
      "MSCCL XML or JSON that carries out every all_reduce, reduce_scatter, all_gather or all_to_all of its group size",
      group);
  flags.value("topology", "NAME|FILE",
              "the cluster's wiring (what weft cluster show takes): programs are made for it, and taken where they are "
              "faster than ours or the library's",
              group);
  flags.toggle("in-network",
               "plans may use programs whose sums and copies are made in switches of the --topology (NVLS, SHARP); no "
               "run of ours can, and takes other programs in their place",
               group);
  declare_topology_flags(flags);
  flags.value("cache", "DIR|none", "where such programs are kept (default: weft/programs in your cache folder)", group);
}

std::vector<ProgramRef> read_programs(const Flags& flags) {
  std::vector<ProgramRef> programs;
  if (!flags.declares("program") || !flags.given("program")) return programs;
  for (const std::string& entry : split(*flags.text("program"), ',')) {
    ProgramRef program = read_program(entry);
    const CollectiveSpec& spec = program->program.spec;
    for (const ProgramRef& other : programs) {
      if (other->program.spec.kind == spec.kind && other->program.spec.ranks == spec.ranks) {
        fail("--program {}: {} is for {} of {} ranks too", entry, other->origin, name_of(spec.kind), spec.ranks);
      }
    }
    programs.push_back(std::move(program));
  }
  return programs;
}

SharedTopology read_topology(const Flags& flags) {
  const bool in_network = flags.declares("in-network") && flags.is_set("in-network");
  if (!flags.declares("topology") || !flags.given("topology")) {
    if (in_network) fail("--in-network: switches take part as a --topology says, and none is given");
    return {};
  }
  Topology topology = find_topology(flags, *flags.text("topology"));
  if (!in_network) return SharedTopology(without_switch_abilities(std::move(topology)));
  if (!has_program_in_switches(topology, Collective::all_reduce)) {
    fail("--in-network: topology '{}' has no switch that {} (in its file: \"multicasts\" and \"reduces\")",
         topology.name, what_switches_must_do(Collective::all_reduce));
  }
  return SharedTopology(std::move(topology));
}

std::shared_ptr<ProgramStore> read_program_store(const Flags& flags, const ClusterSpec& cluster) {
  if (!flags.declares("cache")) return nullptr;
  if (!cluster.topology) {
    if (flags.given("cache")) fail("--cache: keeps programs that are made for a --topology, and none is given");
    return nullptr;
  }
  if (const auto folder = flags.text("cache")) {
    return *folder == "none" ? nullptr : std::make_shared<ProgramFolder>(*folder);
  }
  const char* caches = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (caches != nullptr && *caches == '/') {
    return std::make_shared<ProgramFolder>(std::filesystem::path(caches) / "weft" / "programs");
  }
  if (home == nullptr || *home != '/') return nullptr;
  return std::make_shared<ProgramFolder>(std::filesystem::path(home) / ".cache" / "weft" / "programs");
}

}  // namespace weft
