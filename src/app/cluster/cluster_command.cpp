// `weft cluster show`
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
#include "app/terminal.hpp"
#include "app/version.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/table.hpp"
#include "cluster/topology_cuts.hpp"
#include "io/topology/topology_json.hpp"
#include "io/topology/topology_svg.hpp"

namespace weft {
namespace {

// What the links of a topology allow.
struct TopologyFacts {
  std::vector<std::int32_t> devices;  // vertices, by rank
  std::map<std::int32_t, std::int64_t> ranks;
  GatherCut cut;
  Bisection bisection;

  explicit TopologyFacts(const Topology& topology)
      : devices(topology.devices()), cut(slowest_gather_cut(topology)), bisection(slowest_bisection(topology)) {
    for (std::size_t rank = 0; rank < devices.size(); ++rank) ranks[devices[rank]] = static_cast<std::int64_t>(rank);
  }
  std::vector<std::int64_t> ranks_in_cut(bool inside) const {
    std::vector<std::int64_t> found;
    for (const auto& [device, rank] : ranks) {
      if (cut.inside[device] == inside) found.push_back(rank);
    }
    return found;
  }
  double gather_rate() const {
    return gather_bandwidth(cut, static_cast<std::int64_t>(devices.size())).bytes_per_second;
  }
};

double cut_rate(const GatherCut& cut) {
  return static_cast<double>(cut.out_bandwidth) * kBandwidthUnit;
}

// Links to ranks one by one, links to all else counted.
std::string links_of(const Topology& topology, const TopologyFacts& facts, std::int32_t device) {
  std::string words;
  std::map<std::pair<std::string, double>, int> others;
  const auto append = [&](const std::string& part) { words += (words.empty() ? "" : ", ") + part; };
  for (const TopologyLink& link : topology.links) {
    if (link.from != device) continue;
    const double rate = link.bandwidth.bytes_per_second;
    if (const auto rank = facts.ranks.find(link.to); rank != facts.ranks.end()) {
      append(fmt::format("rank {} {}", rank->second, rate_in_words(rate)));
    } else {
      ++others[{std::string(name_of(topology.vertices[link.to].kind)), rate}];
    }
  }
  for (const auto& [kind, count] : others) {
    append(fmt::format("{} x {} to a {}", count, rate_in_words(kind.second), kind.first));
  }
  return words;
}

std::string topology_in_words(const Topology& topology, const TopologyFacts& facts, std::size_t columns) {
  std::map<std::string, int> counts;
  for (const TopologyVertex& vertex : topology.vertices) ++counts[std::string(name_of(vertex.kind))];
  std::string words = fmt::format("{}: {} devices", topology.name, facts.devices.size());
  if (const int count = counts["switch"]; count > 0)
    words += fmt::format(", {} switch{}", count, count == 1 ? "" : "es");
  if (const int count = counts["nic"]; count > 0) words += fmt::format(", {} NIC{}", count, count == 1 ? "" : "s");
  if (const int count = counts["host"]; count > 0) words += fmt::format(", {} host{}", count, count == 1 ? "" : "s");
  const bool in_network = std::ranges::any_of(topology.vertices, &TopologyVertex::reduces);
  words += in_network ? "; switches reduce and multicast\n\n" : "\n\n";

  TextTable table({"device", "rank", "node", "links"});
  for (std::size_t rank = 0; rank < facts.devices.size(); ++rank) {
    const TopologyVertex& vertex = topology.vertices[facts.devices[rank]];
    table.add_row({vertex.name, fmt::format("{}", rank), vertex.node < 0 ? "" : fmt::format("{}", vertex.node),
                   links_of(topology, facts, facts.devices[rank])});
  }
  words += table.to_string(columns);
  words += fmt::format("\nslowest cut: {} leave rank{} {}, so an all_gather moves at most {} (buffer over time)\n",
                       rate_in_words(cut_rate(facts.cut)), facts.cut.weight == 1 ? "" : "s",
                       ranks_in_words(facts.ranks_in_cut(true)), rate_in_words(facts.gather_rate()));
  std::vector<std::int64_t> half(facts.bisection.half.begin(), facts.bisection.half.end());
  words += fmt::format("bisection: {} from ranks {} to the others{}\n",
                       rate_in_words(facts.bisection.bandwidth.bytes_per_second), ranks_in_words(half),
                       facts.bisection.of_all_halves ? "" : " (of halves of consecutive ranks)");
  return words;
}

nlohmann::ordered_json topology_in_json(const Topology& topology, const TopologyFacts& facts) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["topology"] = topology.name;
  json["ranks"] = nlohmann::ordered_json::array();
  for (const std::int32_t device : facts.devices) {
    const TopologyVertex& vertex = topology.vertices[device];
    json["ranks"].push_back({{"device", vertex.name}, {"node", vertex.node}});
  }
  json["slowest_cut"] = {{"ranks", facts.ranks_in_cut(true)},
                         {"bytes_per_s", cut_rate(facts.cut)},
                         {"all_gather_bytes_per_s", facts.gather_rate()}};
  json["bisection"] = {{"ranks", facts.bisection.half},
                       {"bytes_per_s", facts.bisection.bandwidth.bytes_per_second},
                       {"of_all_halves", facts.bisection.of_all_halves}};
  return json;
}

int run_cluster_show_command(const Arguments& arguments, std::ostream& out, std::ostream&) {
  Flags flags("cluster show",
              "Shows the devices and links of a machine, where every rank sits, its slowest cut and its bisection.",
              "weft cluster show dgx1-v100 --svg dgx1.svg");
  flags.positional(
      "topology",
      "a name (dgx1-v100, dgx2, dgx-a100:2, dgx-h100, mi250, gb200-nvl72, local:4), or a file: "
      "our JSON, a cluster, NCCL's XML, hwloc's (lstopo --of xml), nvidia-smi topo -m, TACCL, ASTRA-sim, TACOS");
  declare_topology_flags(flags);
  flags.value("svg", "FILE", "also draw it there");
  flags.value("save", "FILE", "also write it there as our JSON (docs/topology-format.md)");
  flags.toggle("json", "one JSON object instead of words");
  flags.parse(arguments);
  const auto name = flags.text("topology");
  if (!name) fail("weft cluster show: name a machine or a file, e.g. weft cluster show dgx1-v100");
  require_outputs_can_be_written(flags, {}, {"svg", "save"});
  const Topology topology = find_topology(flags, *name);
  const TopologyFacts facts(topology);
  if (const auto file = flags.text("svg")) {
    write_text_file(*file, [&](std::ostream& picture) { write_topology_svg(picture, topology); });
  }
  if (const auto file = flags.text("save")) {
    write_text_file(*file, [&](std::ostream& text) { text << write_topology_json(topology); });
  }
  if (flags.is_set("json")) {
    out << json_text(topology_in_json(topology, facts), 2) << "\n";
  } else {
    out << topology_in_words(topology, facts, columns_of(out));
  }
  return kOk;
}

constexpr Command kClusterSubcommands[] = {
    {"show", "a machine, or a file about one -> its wiring, slowest cut and bisection; --svg draws it",
     run_cluster_show_command},
};

void print_cluster_usage(std::ostream& out) {
  out << "Machines as graphs of devices, NICs, switches and links.\n\n"
      << "  weft cluster SUBCOMMAND [flags]        weft cluster SUBCOMMAND --help for its flags\n\n";
  print_commands(kClusterSubcommands, 10, out);
  out << "\nExample:\n  weft cluster show dgx1-v100\n";
}

}  // namespace

int run_cluster_command(const Arguments& arguments, std::ostream& out, std::ostream& err) {
  if (arguments.empty()) {
    print_cluster_usage(err);
    return kBadInput;
  }
  if (arguments.front() == "--help" || arguments.front() == "-h") {
    print_cluster_usage(out);
    return kOk;
  }
  return run_named_command(kClusterSubcommands, "weft cluster has no such subcommand", arguments, out, err);
}

}  // namespace weft
