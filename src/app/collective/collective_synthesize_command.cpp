// `weft collective synthesize`
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "app/cli.hpp"
#include "app/cluster/rank_words.hpp"
#include "app/cluster/topology_inputs.hpp"
#include "app/collective/exchange_report.hpp"
#include "app/collective/program_file.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/output_paths.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "collective/fuse.hpp"
#include "collective/synthesis/switch_ranks.hpp"
#include "collective/synthesis/synthesized_program.hpp"
#include "io/msccl/msccl_xml.hpp"
#include "io/program_json.hpp"
#include "io/topology/taccl_sketch.hpp"
#include "study/collective/program_numbers.hpp"
#include "study/collective/sized_synthesis.hpp"

namespace weft {
namespace {

const std::vector<std::string> kSynthesized = {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"};
const std::vector<std::string> kSolvers = {"auto", "none"};
constexpr std::int64_t kMostParts = 64, kMostPieces = 1024;
constexpr double kSolverSeconds = 20;  // of the routes of one sketch

SynthesisRequest read_request(const Flags& flags) {
  static constexpr Collective kKinds[] = {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce,
                                          Collective::all_to_all};
  SynthesisRequest request;
  request.kind = kKinds[flags.one_of("collective", kSynthesized).value_or(0)];
  request.in_place = flags.is_set("in-place");
  request.parts = flags.integer("parts", 1, kMostParts).value_or(request.parts);
  request.max_pieces = flags.integer("pieces", 1, kMostPieces).value_or(request.max_pieces);
  request.in_network = flags.is_set("in-network");
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

// Why nothing is faster: the cut that the trees fill, or what devices or nodes must send.
std::string proof_in_words(const Topology& topology, const Synthesis& synthesis, Collective kind, bool in_network) {
  const LeastTime& least = synthesis.least;
  const double bandwidth = static_cast<double>(least.cut.out_bandwidth) * kBandwidthUnit;
  const std::string inside = ranks_in_words(ranks_inside(topology, least.cut));
  if (least.senders_are_nodes) {
    return fmt::format(
        "{} nodes send each other 2 ({}-1) buffers in all, over {} of links, because nothing between them adds up or "
        "copies",
        least.senders, least.senders, rate_in_words(least.senders_bytes_per_second));
  }
  if (kind == Collective::all_reduce && !in_network) {
    return "the buffer must leave every set of devices that a cut separates, and devices send 2 (N-1) buffers in all";
  }
  if (kind == Collective::all_reduce) {
    return fmt::format("the whole buffer must leave rank{} {} over {}, wherever it is added up",
                       inside.find_first_of(",-.") == std::string::npos ? "" : "s", inside, rate_in_words(bandwidth));
  }
  return fmt::format("{} of {} slices must {} ranks {} over {}", least.cut.weight, synthesis.program.spec.ranks,
                     kind == Collective::all_gather ? "leave" : "enter", inside, rate_in_words(bandwidth));
}

// Which switches take part, or that some could.
std::string switches_in_words(const Topology& topology, const Synthesis& synthesis, const SynthesisRequest& request) {
  if (!synthesis.switches.empty()) {
    const bool is_root = synthesis.roots.back() >= synthesis.program.spec.ranks;
    const std::int64_t first = synthesis.program.spec.ranks, last = std::ssize(synthesis.program.ranks) - 1;
    return fmt::format("switches take part as {}{}: {}\n",
                       first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last),
                       is_root ? ", and sums are made there" : "", fmt::join(synthesis.switches, ", "));
  }
  if (request.in_network) return "switches that could take part would make it slower\n";
  if (switch_ranks_for(topology, request.kind).empty()) return "";
  return fmt::format("switches of this machine could {}: --in-network\n",
                     request.kind == Collective::all_gather       ? "multicast"
                     : request.kind == Collective::reduce_scatter ? "reduce"
                                                                  : "reduce and multicast");
}

std::string synthesis_in_words(const Topology& topology, const Synthesis& synthesis, const SynthesisRequest& request) {
  const TreePacking& packing = synthesis.gather ? *synthesis.gather : *synthesis.scatter;
  const ProgramSize size = size_of(synthesis.program);
  std::string words =
      fmt::format("{}: {} on {} ranks: {} trees, at most {} messages deep, {} pieces in {} part{}\n", topology.name,
                  name_of(request.kind), synthesis.program.spec.ranks, packing.trees.size(), depth_of(packing),
                  synthesis.program.spec.pieces, request.parts, request.parts == 1 ? "" : "s");
  words += switches_in_words(topology, synthesis, request);
  if (synthesis.switches.empty() && synthesis.roots.size() < packing.pieces.size()) {
    words +=
        fmt::format("sums are made at ranks {} only: the others' links are slower\n", ranks_in_words(synthesis.roots));
  }
  const double share = synthesis.least.seconds / synthesis.seconds;
  words += fmt::format("{} (buffer over time, large buffers), {}\n", rate_in_words(1 / synthesis.seconds),
                       share > 1 - 1e-9 ? "the optimum" : fmt::format("{:.2f} % of what nothing beats", 100 * share));
  words += fmt::format("nothing is faster than {}: {}\n", rate_in_words(1 / synthesis.least.seconds),
                       proof_in_words(topology, synthesis, request.kind, request.in_network));
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
  json["ranks"] = synthesis.program.spec.ranks;
  if (request.in_network) json["switches"] = synthesis.switches;
  json["pieces"] = synthesis.program.spec.pieces;
  json["parts"] = request.parts;
  json["trees"] = packing.trees.size();
  json["depth"] = depth_of(packing);
  json["roots"] = synthesis.roots;
  json["bytes_per_s"] = 1 / synthesis.seconds;
  json["most_bytes_per_s"] = 1 / synthesis.least.seconds;
  const bool by_gather = request.kind == Collective::all_reduce && !request.in_network;
  const GatherCut& cut = by_gather ? synthesis.gather->cut : synthesis.least.cut;
  json["cut"] = {{"ranks", ranks_inside(topology, cut)},
                 {"bytes_per_s", static_cast<double>(cut.out_bandwidth) * kBandwidthUnit}};
  if (synthesis.least.senders_are_nodes) json["sending_nodes"] = synthesis.least.senders;
  json["blocks"] = size.blocks;
  json["instructions"] = size.instructions;
  return json;
}

void write_program(const Flags& flags, const Program& program, Bytes least, Bytes most) {
  const auto file = flags.text("out");
  if (!file) return;
  if (is_program_json(*file)) {
    const std::string text = json_text(program_to_json(program));
    write_text_file(*file, [&](std::ostream& json) { json << text << "\n"; });
    return;
  }
  if (switches_of(program) > 0) {
    fail("--out {}: MSCCL's files know no steps in switches; give a name that ends in .json", *file);
  }
  MscclOptions options;
  options.name = fmt::format("{}_synthesized_{}", name_of(program.spec.kind), program.spec.ranks);
  options.min_bytes = least.value;
  options.max_bytes = most.value;
  const std::string text = write_msccl_xml(fused(program), options);
  write_text_file(*file, [&](std::ostream& xml) { xml << text; });
}

std::vector<ProgramRef> read_rivals(const std::vector<std::string>& files, const SynthesisRequest& request,
                                    std::size_t ranks) {
  std::vector<ProgramRef> rivals;
  for (const std::string& file : files) {
    Program program = read_msccl_xml(read_text_file(file), file);
    if (program.spec.kind != request.kind || program.spec.ranks != static_cast<std::int64_t>(ranks)) {
      fail("{}: is a program for {} of {} ranks, not {} of {}", file, name_of(program.spec.kind), program.spec.ranks,
           name_of(request.kind), ranks);
    }
    if (const auto violation = first_violation(program)) fail("{}: not safe: {}", file, *violation);
    rivals.emplace_back(CarriedProgram{file, std::move(program)});
  }
  return rivals;
}

std::vector<Sketch> read_sketches(const Flags& flags, Collective kind) {
  std::vector<Sketch> sketches;
  if (!flags.given("sketch")) return sketches;
  if (kind == Collective::all_to_all) fail("--sketch: is for all_gather, reduce_scatter and all_reduce");
  for (const std::string& file : split(*flags.text("sketch"), ',')) {
    sketches.push_back(read_taccl_sketch(read_text_file(file), file));
  }
  return sketches;
}

struct ShownOrigins {
  bool in_network = false, sketches = false;
};

std::string sizes_in_words(const Topology& topology, const std::vector<SizedSynthesis>& sizes, ShownOrigins shown) {
  std::vector<std::string> heads{"size", "program", "time", "made", "generator", "ring", "tree", "file"};
  if (shown.sketches) heads.emplace_back("sketch");
  if (shown.in_network) heads.emplace_back("in switches");
  TextTable table(heads);
  for (const SizedSynthesis& sized : sizes) {
    const auto time_of = [&](const SizedCandidate* candidate) {
      return candidate != nullptr ? format_time(candidate->time) : std::string("-");
    };
    const auto named = [&](std::string_view name) -> const SizedCandidate* {
      for (const SizedCandidate& c : sized.candidates) {
        if (c.origin == ProgramOrigin::generator && c.name.substr(0, c.name.find(' ')) == name) return &c;
      }
      return nullptr;
    };
    const SizedCandidate& best = sized.candidates.front();
    std::vector<std::string> cells{format_bytes(sized.size),
                                   best.name,
                                   format_time(best.time),
                                   time_of(sized.best_of(ProgramOrigin::made)),
                                   time_of(sized.best_of(ProgramOrigin::generator)),
                                   time_of(named("ring")),
                                   time_of(named("tree")),
                                   time_of(sized.best_of(ProgramOrigin::file))};
    if (shown.sketches) cells.push_back(time_of(sized.best_of(ProgramOrigin::sketch)));
    if (shown.in_network) cells.push_back(time_of(sized.best_of(ProgramOrigin::in_network)));
    table.add_row(cells);
  }
  return fmt::format("{}: simulated, alone on its links; the program of every row is proven\n{}", topology.name,
                     table.to_string());
}

nlohmann::ordered_json sizes_in_json(const Topology& topology, const SynthesisRequest& request,
                                     const std::vector<SizedSynthesis>& sizes) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["topology"] = topology.name;
  json["collective"] = name_of(request.kind);
  json["sizes"] = nlohmann::ordered_json::array();
  for (const SizedSynthesis& sized : sizes) {
    nlohmann::ordered_json row{{"size_bytes", sized.size.value}, {"candidates", nlohmann::ordered_json::array()}};
    for (const SizedCandidate& c : sized.candidates) {
      row["candidates"].push_back({{"program", c.name}, {"origin", name_of(c.origin)}, {"time_s", seconds(c.time)}});
    }
    json["sizes"].push_back(std::move(row));
  }
  return json;
}

// Latency counts: all programs that there are for these sizes, timed.
int synthesize_for_sizes(const Flags& flags, const Topology& topology, const SynthesisRequest& request,
                         std::ostream& out) {
  for (const char* other : {"parts", "pieces"}) {
    if (flags.given(other)) fail("--{}: is not for --size, which tries several", other);
  }
  if (request.kind == Collective::all_to_all && request.in_place) {
    fail("--in-place: an all_to_all is made for two buffers");
  }
  if (request.kind == Collective::all_to_all && request.in_network) {
    fail("--in-network: in an all_to_all there is nothing to add up or to copy");
  }
  std::vector<SizedSynthesis> sizes;
  SizedRequest sized{request.kind, request.in_place};
  sized.files = read_rivals(flags.texts(), request, topology.devices().size());
  sized.in_network = request.in_network;
  sized.sketches = read_sketches(flags, request.kind);
  sized.solver_seconds = flags.one_of("solver", kSolvers) == 1 ? 0 : kSolverSeconds;
  for (const std::string& text : split(*flags.text("size"), ',')) {
    const Bytes size = parse_bytes(text, "--size");
    if (size.value < 1) fail("--size {}: there is nothing to move", text);
    sized.size = size;
    sizes.push_back(synthesize_for_size(topology, sized));
    if (const auto violation = first_violation(sizes.back().candidates.front().program)) {
      throw UnsafePlan(fmt::format("the program for {} is wrong: {}", topology.name, *violation));
    }
  }
  if (flags.given("out") && sizes.size() > 1) fail("--out: takes one program; give one --size");
  write_program(flags, sizes.front().candidates.front().program, Bytes{0}, sizes.front().size);
  out << (flags.is_set("json") ? json_text(sizes_in_json(topology, request, sizes), 2) + "\n"
                               : sizes_in_words(topology, sizes, {request.in_network, !sized.sketches.empty()}));
  return kOk;
}

// What the links allow; whole chunks are cut for a --size.
int say_exchange(const Flags& flags, const Topology& topology, std::ostream& out) {
  for (const char* other : {"parts", "pieces", "out", "in-place", "in-network"}) {
    if (flags.given(other)) fail("--{}: an all_to_all is made for a --size, e.g. --size 1MiB", other);
  }
  const bool weights = flags.one_of("solver", kSolvers) == 1;
  const ExchangeFlow flow = exchange_flow(topology, weights ? FlowMethod::weights : FlowMethod::solver_if_there);
  out << (flags.is_set("json") ? json_text(exchange_in_json(topology, flow), 2) + "\n"
                               : exchange_in_words(topology, flow));
  return kOk;
}

}  // namespace

int run_collective_synthesize_command(const Arguments& arguments, std::ostream& out, std::ostream&) {
  Flags flags("collective synthesize",
              "Makes a program for the links of a machine: spanning trees that reach the rate of its slowest cut.",
              "weft collective synthesize --topology dgx1-v100 --collective all_gather --out dgx1.xml");
  flags.value("topology", "NAME|FILE", "what weft cluster show takes: dgx-a100:2, mi250, local:4, a file");
  flags.positionals("files", "with --size: programs as MSCCL XML to compare with");
  flags.value("collective", "NAME", "all_gather (default), reduce_scatter, all_reduce, all_to_all");
  flags.value("size", "S,S,...", "buffers so large, latency counts: the fastest of many programs by simulation");
  flags.value("parts", "P", "messages are cut into so many that follow each other, for deep trees (default: 1)");
  flags.value("pieces", "K", "at most so many pieces of a rank travel on ways of their own (default: 64)");
  flags.toggle("in-place", "input and output are one buffer");
  flags.toggle("in-network", "switches that reduce and multicast take part (NVLS, SHARP), as ranks of the program");
  flags.value("sketch", "FILE,...", "with --size: TACCL's sketches, each of which gives programs by its synthesis");
  flags.value("solver", "auto|none",
              "all_to_all without --size, and --sketch: CBC where it is installed (default), or no solver");
  declare_topology_flags(flags);
  flags.value("out", "FILE", "also write the program there: as MSCCL XML, or as JSON where the name ends in .json");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  flags.toggle("json", "one JSON object instead of words");
  flags.parse(arguments);
  const auto name = flags.text("topology");
  if (!name) fail("--topology: is missing; name a machine or a file, e.g. --topology dgx1-v100");
  require_outputs_can_be_written(flags, {}, {"out"});
  const SynthesisRequest request = read_request(flags);
  const Topology topology = find_topology(flags, *name);
  if (flags.given("size")) return synthesize_for_sizes(flags, topology, request, out);
  if (flags.given("sketch")) fail("--sketch: is for a --size, e.g. --size 1MiB: in a sketch latency counts");
  if (!flags.texts().empty()) fail("{}: files are compared for a --size", flags.texts().front());
  if (request.kind == Collective::all_to_all) return say_exchange(flags, topology, out);
  const Synthesis synthesis = synthesize(topology, request);
  if (const auto violation = first_violation(synthesis.program)) {
    throw UnsafePlan(fmt::format("the program for {} is wrong: {}", topology.name, *violation));
  }
  write_program(flags, synthesis.program, Bytes{0}, Bytes{MscclOptions{}.max_bytes});
  if (flags.is_set("json")) {
    out << json_text(synthesis_in_json(topology, synthesis, request), 2) << "\n";
  } else {
    out << synthesis_in_words(topology, synthesis, request);
  }
  return kOk;
}

}  // namespace weft
