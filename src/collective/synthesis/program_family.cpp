#include "collective/synthesis/program_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "cluster/topology_cuts.hpp"
#include "cluster/topology_way.hpp"
#include "collective/algorithm/holdings.hpp"
#include "collective/synthesis/exchange_flow.hpp"
#include "collective/synthesis/list_schedule.hpp"
#include "collective/synthesis/switch_ranks.hpp"
#include "collective/synthesis/synthesized_program.hpp"

namespace weft {
namespace {

// Messages below this cost more latency than finer pieces could save.
constexpr double kLeastMessage = 512;
// Lists with more messages take longer to find than they are worth.
constexpr std::int64_t kMaxListMessages = 40'000;

struct Sources {
  std::string name;
  std::vector<std::int32_t> ranks;  // of each chunk, ascending
  CrossingRules rules = {};
};

void copy_along(Holdings& holdings, const std::vector<ScheduledMessage>& messages) {
  for (const ScheduledMessage& m : messages) holdings.copy({.from = m.from, .to = m.to, .pieces = {m.chunk}});
}

// The messages were scheduled in the turned topology: sums take their ways backwards, the last first.
void reduce_along(Holdings& holdings, const std::vector<ScheduledMessage>& messages) {
  for (auto m = messages.rbegin(); m != messages.rend(); ++m) {
    holdings.reduce({.from = m->to, .to = m->from, .pieces = {m->chunk}});
  }
}

// Returns nothing where the rules of the crossing keep a chunk from some rank: gateways of two nodes may have no direct
// way between them.
std::optional<Program> list_program(const Topology& topology, const FamilyRequest& request, const Sources& sources) {
  const auto chunks = static_cast<std::int64_t>(sources.ranks.size());
  const double bytes = request.bytes / static_cast<double>(chunks);
  const std::int64_t all_messages = chunks * (std::ssize(topology.devices()) - 1);
  ProgramBuilder builder("list", {request.kind, std::ssize(topology.devices()), 0, chunks}, request.in_place);
  Holdings holdings(builder);
  if (request.kind != Collective::all_gather) {
    const auto messages = schedule_to_all(reversed(topology), sources.ranks, bytes, sources.rules);
    if (std::ssize(messages) < all_messages) return std::nullopt;
    reduce_along(holdings, messages);
  }
  if (request.kind != Collective::reduce_scatter) {
    const auto messages = schedule_to_all(topology, sources.ranks, bytes, sources.rules);
    if (std::ssize(messages) < all_messages) return std::nullopt;
    copy_along(holdings, messages);
  }
  holdings.settle();
  return std::move(builder).finish();
}

// Every rank a source of so many chunks.
Sources all_ranks(std::int64_t ranks, std::int64_t chunks, const CrossingRules& rules) {
  std::string crossing;
  if (rules.gateways > 0) {
    crossing = fmt::format(" over {} gateway{} of a node", rules.gateways, rules.gateways == 1 ? "" : "s");
  } else if (rules.once) {
    crossing = ", once into every node";
  }
  Sources sources{fmt::format("list of {} chunk{} a rank{}", chunks, chunks == 1 ? "" : "s", crossing), {}, rules};
  for (std::int64_t i = 0; i < ranks * chunks; ++i) {
    sources.ranks.push_back(static_cast<std::int32_t>(i / chunks));
  }
  return sources;
}

// How chunks may cross between nodes: freely, and where nodes can spread among themselves what has come in, in order.
std::vector<CrossingRules> crossings_of(const Topology& topology) {
  std::map<std::int64_t, std::vector<Rank>> nodes;
  const std::vector<std::int32_t> devices = topology.devices();
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    nodes[topology.vertices[devices[rank]].node].push_back(Rank{static_cast<std::int32_t>(rank)});
  }
  std::vector<CrossingRules> rules{{}};
  if (nodes.size() < 2 || nodes.size() == devices.size()) return rules;
  std::size_t smallest = devices.size();
  for (const auto& [node, ranks] : nodes) {
    if (!joins_all_devices(between_ranks(topology, ranks))) return rules;
    smallest = std::min(smallest, ranks.size());
  }
  rules.push_back({.once = true, .gateways = 0});
  for (const std::int64_t gateways : {1, 2, 4}) {
    if (gateways < static_cast<std::int64_t>(smallest)) rules.push_back({.once = true, .gateways = gateways});
  }
  return rules;
}

std::vector<Sources> sources_for(const Topology& topology, const FamilyRequest& request) {
  const std::vector<std::int32_t> devices = topology.devices();
  const auto ranks = static_cast<std::int64_t>(devices.size());
  const std::vector<CrossingRules> crossings = crossings_of(topology);
  std::vector<Sources> all;
  for (const std::int64_t chunks : {1, 2, 4}) {
    const bool too_small = chunks > 1 && request.bytes / static_cast<double>(ranks * chunks) < kLeastMessage;
    if (too_small || ranks * ranks * chunks > kMaxListMessages) continue;
    for (const CrossingRules& rules : crossings) all.push_back(all_ranks(ranks, chunks, rules));
  }
  if (request.kind != Collective::all_reduce) return all;
  std::map<std::int64_t, std::int32_t> first_of_node;
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    first_of_node.try_emplace(topology.vertices[devices[rank]].node, rank);
    // With many ranks, those that come first stand for all.
    if (ranks <= 16 || rank < 4) all.push_back({fmt::format("list to and from rank {}", rank), {rank}, {}});
  }
  if (first_of_node.size() > 1 && std::ssize(first_of_node) < ranks) {
    Sources leaders{"list to and from a rank of every node", {}, {}};
    for (const auto& [node, rank] : first_of_node) leaders.ranks.push_back(rank);
    all.push_back(leaders);
  }
  return all;
}

constexpr std::int64_t kParts[] = {1, 2, 4, 8, 16};

// In as many parts as leave messages large enough; `name` says a member's name from its pieces and parts.
template <typename Name>
void add_in_parts(const Synthesis& trees, SynthesisRequest with, double bytes,
                  std::set<std::pair<std::int64_t, std::int64_t>>& seen, const Name& name,
                  std::vector<FamilyMember>& family) {
  const std::int64_t pieces = trees.program.spec.pieces;
  for (const std::int64_t parts : kParts) {
    if (parts > 1 && bytes / static_cast<double>(pieces * parts) < kLeastMessage) break;
    if (!seen.insert({pieces, parts}).second) continue;
    with.parts = parts;
    const std::string in_parts = fmt::format("in {} part{}", parts, parts == 1 ? "" : "s");
    family.push_back({fmt::format("{} {}", name(pieces), in_parts), program_in_parts(trees, with)});
  }
}

void add_forests(const Topology& topology, const FamilyRequest& request, std::vector<FamilyMember>& family) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // pieces, parts
  for (const std::int64_t pieces : {1, 4, 64}) {
    const SynthesisRequest whole{request.kind, request.in_place, 1, pieces};
    Synthesis forest;
    try {
      forest = synthesize(topology, whole);
    } catch (const Error&) {  // a wiring that trees cannot be packed into; lists remain
      return;
    }
    add_in_parts(
        forest, whole, request.bytes, seen, [](std::int64_t all) { return fmt::format("forest of {} pieces", all); },
        family);
  }
}

// Chunk (s N + d) `chunks` + k travels as the messages say.
Program exchange_program(std::int64_t ranks, std::int64_t chunks, const std::vector<ScheduledMessage>& messages) {
  ProgramBuilder builder("exchange", {Collective::all_to_all, ranks, 0, ranks * chunks}, /*in_place=*/false);
  std::vector<std::int64_t> scratch(ranks, 0);
  std::vector<Spot> at(ranks * ranks * chunks);
  for (std::int64_t i = 0; i < std::ssize(at); ++i) {
    at[i] = input_of(i / (ranks * chunks), i % (ranks * chunks));
  }
  for (const ScheduledMessage& m : messages) {
    const std::int64_t from = m.chunk / (ranks * chunks), to = m.chunk / chunks % ranks, k = m.chunk % chunks;
    const Spot next = m.to == to ? output_of(to, from * chunks + k) : scratch_of(m.to, scratch[m.to]++);
    builder.copy(at[m.chunk], next);
    at[m.chunk] = next;
  }
  for (std::int64_t r = 0; r < ranks; ++r) builder.copy(input_of(r, r * chunks), output_of(r, r * chunks), chunks);
  return std::move(builder).finish();
}

void add_exchanges(const Topology& topology, const FamilyRequest& request, std::vector<FamilyMember>& family) {
  const auto ranks = static_cast<std::int64_t>(topology.devices().size());
  if (request.in_place || ranks * ranks > kMaxListMessages) return;
  const ExchangeFlow flow = exchange_flow(topology, FlowMethod::weights);
  for (const std::int64_t chunks : {1, 2, 4}) {
    const bool too_small = chunks > 1 && request.bytes / static_cast<double>(ranks * chunks) < kLeastMessage;
    if (too_small || ranks * ranks * chunks > kMaxListMessages) break;
    const double bytes = request.bytes / static_cast<double>(ranks * chunks);
    family.push_back({fmt::format("exchange of {} chunk{} a pair", chunks, chunks == 1 ? "" : "s"),
                      exchange_program(ranks, chunks, schedule_all_to_all(topology, chunks, bytes))});
    family.push_back({fmt::format("flow of {} chunk{} a pair", chunks, chunks == 1 ? "" : "s"),
                      exchange_program(ranks, chunks, schedule_ways(topology, ways_of_chunks(flow, chunks), bytes))});
  }
}

}  // namespace

std::vector<FamilyMember> switch_family(const Topology& topology, const FamilyRequest& request) {
  std::vector<FamilyMember> family;
  if (!has_program_in_switches(topology, request.kind)) return family;
  std::set<std::pair<std::int64_t, std::int64_t>> seen;  // pieces, parts
  for (const std::int64_t pieces : {1, 64}) {
    const SynthesisRequest whole{request.kind, request.in_place, 1, pieces, /*in_network=*/true};
    Synthesis trees;
    try {
      trees = synthesize(topology, whole);
    } catch (const Error&) {  // as above: programs without switches remain
      return family;
    }
    if (trees.switches.empty()) return family;  // they would make it slower
    const std::string through =
        fmt::format("pieces through {} switch{}", trees.switches.size(), trees.switches.size() == 1 ? "" : "es");
    add_in_parts(
        trees, whole, request.bytes, seen, [&](std::int64_t all) { return fmt::format("{} {}", all, through); },
        family);
  }
  return family;
}

std::vector<FamilyMember> program_family(const Topology& topology, const FamilyRequest& request) {
  const auto ranks = static_cast<std::int64_t>(topology.devices().size());
  std::vector<FamilyMember> family;
  if (ranks < 2 || ranks > kMaxFamilyRanks || !joins_all_devices(topology)) return family;
  if (request.kind == Collective::all_to_all) {
    add_exchanges(topology, request, family);
    return family;
  }
  const bool known = request.kind == Collective::all_gather || request.kind == Collective::reduce_scatter ||
                     request.kind == Collective::all_reduce;
  if (!known) return family;
  for (const Sources& sources : sources_for(topology, request)) {
    if (auto program = list_program(topology, request, sources)) family.push_back({sources.name, std::move(*program)});
  }
  add_forests(topology, request, family);
  return family;
}

}  // namespace weft
