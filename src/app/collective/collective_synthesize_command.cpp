// `weft collective synthesize`
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/cluster/rank_words.hpp"
#include "app/cluster/topology_inputs.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/output_paths.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "collective/fuse.hpp"
#include "collective/synthesis/synthesized_program.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "study/collective/program_numbers.hpp"

namespace weft {
namespace {

const std::vector<std::string> kSynthesized = {"all_gather", "reduce_scatter", "all_reduce"};
constexpr std::int64_t kMostParts = 64, kMostPieces = 1024;

SynthesisRequest read_request(const Flags& flags) {
  static constexpr Collective kKinds[] = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce};
  SynthesisRequest request;
  request.kind = kKinds[flags.one_of("collective", kSynthesized).value_or(0)];
  request.in_place = flags.is_set("in-place");
  request.parts = flags.integer("parts", 1, kMostParts).value_or(request.parts);
  request.max_pieces = flags.integer("pieces", 1, kMostPieces).value_or(request.max_pieces);
  return request;
}

std::int64_t depth_of(const TreePacking& packing) {
  std::int64_t deepest = 0;
  for (const SpanningTree& tree : packing.trees) {
    std::map<std::int32_t, std::int64_t> depth{{tree.root, 0}};
    for (const TreeEdge& edge : tree.edges) {
      depth[edge.to] = depth[edge.from] + 1;
      deepest = std::max(deepest, depth[edge.to]);
    }
  }
  return deepest;
}

std::vector<std::int64_t> ranks_inside(const Topology& topology, const GatherCut& cut) {
  std::vector<std::int64_t> ranks;
  const std::vector<std::int32_t> devices = topology.devices();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (cut.inside[devices[rank]]) ranks.push_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

// Why nothing is faster: the cut that the trees fill.
std::string proof_in_words(const Topology& topology, const Synthesis& synthesis, Collective kind) {
  if (kind == Collective::all_reduce) {
    return "the buffer must leave every set of devices that a cut separates, and devices send 2 (N-1) buffers in all";
  }
  const TreePacking& packing = synthesis.gather ? *synthesis.gather : *synthesis.scatter;
  const double bandwidth = static_cast<double>(packing.cut.out_bandwidth) * kBandwidthUnit;
  return fmt::format("{} of {} slices must {} ranks {} over {}", packing.cut.weight, packing.pieces.size(),
                     kind == Collective::all_gather ? "leave" : "enter",
                     ranks_in_words(ranks_inside(topology, packing.cut)), rate_in_words(bandwidth));
}

std::string synthesis_in_words(const Topology& topology, const Synthesis& synthesis, const SynthesisRequest& request) {
  const TreePacking& packing = synthesis.gather ? *synthesis.gather : *synthesis.scatter;
  const ProgramSize size = size_of(synthesis.program);
  std::string words =
      fmt::format("{}: {} on {} ranks: {} trees, at most {} messages deep, {} pieces in {} part{}\n", topology.name,
                  name_of(request.kind), packing.pieces.size(), packing.trees.size(), depth_of(packing),
                  synthesis.program.spec.pieces, request.parts, request.parts == 1 ? "" : "s");
  if (synthesis.roots.size() < packing.pieces.size()) {
    words +=
        fmt::format("sums are made at ranks {} only: the others' links are slower\n", ranks_in_words(synthesis.roots));
  }
  const double share = synthesis.least_seconds / synthesis.seconds;
  words += fmt::format("{} (buffer over time, large buffers), {}\n", rate_in_words(1 / synthesis.seconds),
                       share > 1 - 1e-9 ? "the optimum" : fmt::format("{:.2f} % of what nothing beats", 100 * share));
  words += fmt::format("nothing is faster than {}: {}\n", rate_in_words(1 / synthesis.least_seconds),
                       proof_in_words(topology, synthesis, request.kind));
  words +=
      fmt::format("program: {} blocks, {} instructions, proven for every timing\n", size.blocks, size.instructions);
  return words;
}

nlohmann::ordered_json synthesis_in_json(const Topology& topology, const Synthesis& synthesis,
                                         const SynthesisRequest& request) {
  const TreePacking& packing = synthesis.gather ? *synthesis.gather : *synthesis.scatter;
  const ProgramSize size = size_of(synthesis.program);
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["topology"] = topology.name;
  json["collective"] = name_of(request.kind);
  json["ranks"] = packing.pieces.size();
  json["pieces"] = synthesis.program.spec.pieces;
  json["parts"] = request.parts;
  json["trees"] = packing.trees.size();
  json["depth"] = depth_of(packing);
  json["roots"] = synthesis.roots;
  json["bytes_per_s"] = 1 / synthesis.seconds;
  json["most_bytes_per_s"] = 1 / synthesis.least_seconds;
  json["cut"] = {{"ranks", ranks_inside(topology, packing.cut)},
                 {"bytes_per_s", static_cast<double>(packing.cut.out_bandwidth) * kBandwidthUnit}};
  json["blocks"] = size.blocks;
  json["instructions"] = size.instructions;
  return json;
}

}  // namespace

int run_collective_synthesize_command(const Arguments& arguments, std::ostream& out, std::ostream&) {
  Flags flags("collective synthesize",
              "Makes a program for the links of a machine: spanning trees that reach the rate of its slowest cut.",
              "weft collective synthesize --topology dgx1-v100 --collective all_gather --out dgx1.xml");
  flags.value("topology", "NAME|FILE", "what weft cluster show takes: dgx-a100:2, mi250, local:4, a file");
  flags.value("collective", "NAME", "all_gather (default), reduce_scatter or all_reduce");
  flags.value("parts", "P", "messages are cut into so many that follow each other, for deep trees (default: 1)");
  flags.value("pieces", "K", "at most so many pieces of a rank travel on ways of their own (default: 64)");
  flags.toggle("in-place", "input and output are one buffer");
  declare_topology_flags(flags);
  flags.value("out", "FILE", "also write the program there as MSCCL XML");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of words");
  flags.parse(arguments);
  const auto name = flags.text("topology");
  if (!name) fail("--topology: is missing; name a machine or a file, e.g. --topology dgx1-v100");
  require_outputs_can_be_written(flags, {}, {"out"});
  const SynthesisRequest request = read_request(flags);
  const Topology topology = find_topology(flags, *name);
  const Synthesis synthesis = synthesize(topology, request);
  if (const auto violation = first_violation(synthesis.program)) {
    throw UnsafePlan(fmt::format("the program for {} is wrong: {}", topology.name, *violation));
  }
  if (const auto file = flags.text("out")) {
    MscclOptions options;
    options.name = fmt::format("{}_synthesized_{}", name_of(request.kind), synthesis.program.spec.ranks);
    const std::string text = write_msccl_xml(fused(synthesis.program), options);
    write_text_file(*file, [&](std::ostream& xml) { xml << text; });
  }
  if (flags.is_set("json")) {
    out << json_text(synthesis_in_json(topology, synthesis, request), 2) << "\n";
  } else {
    out << synthesis_in_words(topology, synthesis, request);
  }
  return kOk;
}

}  // namespace weft
