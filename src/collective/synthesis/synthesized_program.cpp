#include "collective/synthesis/synthesized_program.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "collective/algorithm/holdings.hpp"
#include "collective/synthesis/switch_ranks.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxParts = 64, kMaxPiecesOfARank = 1024;

struct TreeMessage {
  std::int32_t from = 0, to = 0;
  std::int64_t first_piece = 0, count = 0;
};

// By part and depth: every rank first does what others wait for.
using MessageRounds = std::map<std::pair<std::int64_t, std::int64_t>, std::vector<TreeMessage>>;

// The pieces of rank r begin at `first[r]`: part 0 of all its trees, then part 1, and so on, so that a part means the
// same pieces whatever the trees are.
MessageRounds rounds_of(const TreePacking& packing, const std::vector<std::int64_t>& first, std::int64_t parts) {
  MessageRounds rounds;
  std::vector<std::int64_t> next = first;
  for (const SpanningTree& tree : packing.trees) {
    std::map<std::int32_t, std::int64_t> depth{{tree.root, 0}};
    const std::int64_t begin = next[tree.root];
    next[tree.root] += tree.pieces;
    for (const TreeEdge& edge : tree.edges) {
      const std::int64_t below = depth.at(edge.from) + 1;
      depth[edge.to] = below;
      for (std::int64_t part = 0; part < parts; ++part) {
        rounds[{part, below}].push_back({edge.from, edge.to, begin + part * packing.pieces[tree.root], tree.pieces});
      }
    }
  }
  return rounds;
}

// Pieces stand at `first[r]` and travel away from the roots.
void gather_part(Holdings& holdings, const MessageRounds& rounds, std::int64_t part) {
  for (const auto& [when, messages] : rounds) {
    if (when.first != part) continue;
    for (const TreeMessage& message : messages) {
      holdings.copy(
          {.from = message.from, .to = message.to, .pieces = consecutive(message.first_piece, message.count)});
    }
  }
}

// The trees were packed in the turned topology: sums travel from the leaves to the roots.
void reduce_part(Holdings& holdings, const MessageRounds& rounds, std::int64_t part) {
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    if (round->first.first != part) continue;
    for (const TreeMessage& message : round->second) {
      holdings.reduce(
          {.from = message.to, .to = message.from, .pieces = consecutive(message.first_piece, message.count)});
    }
  }
}

// Where the pieces of every rank begin, and behind the last how many there are.
std::vector<std::int64_t> first_pieces(const std::vector<std::int64_t>& pieces, std::int64_t parts) {
  std::vector<std::int64_t> first{0};
  for (const std::int64_t count : pieces) first.push_back(first.back() + count * parts);
  return first;
}

// A packing whose counts of pieces are those of another: both are multiplied up to what they have in common.
void scale_pieces(TreePacking& packing, std::int64_t factor) {
  for (std::int64_t& pieces : packing.pieces) pieces *= factor;
  for (SpanningTree& tree : packing.trees) {
    tree.pieces *= factor;
    for (TreeEdge& edge : tree.edges) {
      for (Route& route : edge.routes) route.capacity *= factor;
    }
  }
}

void match_pieces(TreePacking& a, TreePacking& b, const std::vector<std::int64_t>& shares) {
  const auto share =
      static_cast<std::size_t>(std::ranges::find_if(shares, [](auto s) { return s > 0; }) - shares.begin());
  const std::int64_t common = std::lcm(a.pieces[share], b.pieces[share]);
  scale_pieces(a, common / a.pieces[share]);
  scale_pieces(b, common / b.pieces[share]);
}

// Ranks behind the members are switches. A switch that passes nothing on need not be reached.
TreePacking trees_with_switches(const Topology& topology, const std::vector<std::int64_t>& shares, std::size_t members,
                                std::int64_t max_pieces) {
  TreePacking packing = pack_trees(topology, shares, max_pieces);
  for (SpanningTree& tree : packing.trees) {
    const auto is_idle = [&](const TreeEdge& edge) {
      return edge.to >= static_cast<std::int64_t>(members) &&
             std::ranges::find(tree.edges, edge.to, &TreeEdge::from) == tree.edges.end();
    };
    for (auto idle = std::ranges::find_if(tree.edges, is_idle); idle != tree.edges.end();
         idle = std::ranges::find_if(tree.edges, is_idle)) {
      tree.edges.erase(idle);
    }
  }
  return packing;
}

// Links that carry sums one way and results the other are busy with both at once.
double seconds_of_both(const Topology& topology, const std::optional<TreePacking>& gather,
                       const std::optional<TreePacking>& scatter) {
  const std::vector<double> idle(topology.links.size(), 0);
  const std::vector<double> down = gather ? link_loads(topology, *gather) : idle;
  const std::vector<double> up = scatter ? link_loads(reversed(topology), *scatter) : idle;
  double longest = 0;
  for (std::size_t i = 0; i < down.size(); ++i) {
    longest = std::max(longest, (down[i] + up[i]) / topology.links[i].bandwidth.bytes_per_second);
  }
  return longest;
}

struct Trees {
  std::vector<std::int64_t> shares;
  std::optional<TreePacking> gather, scatter;
  double seconds = 0;
};

// A part of every link: of those from devices into switches that take part `into`, of those back the rest, of others
// half. (Both directions of the others get the same, so that switches which only pass on stay balanced.)
Topology part_of_links(const Topology& topology, std::size_t members, double into) {
  Topology part = topology;
  const std::vector<std::int32_t> devices = topology.devices();
  std::vector<bool> is_member(topology.vertices.size(), false), is_switch = is_member;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    (rank < members ? is_member : is_switch)[devices[rank]] = true;
  }
  for (TopologyLink& link : part.links) {
    double own = 0.5;
    if (is_member[link.from] && is_switch[link.to]) own = into;
    if (is_switch[link.from] && is_member[link.to]) own = 1 - into;
    link.bandwidth.bytes_per_second *= own;
  }
  return part;
}

// With `into` above 0, results get that part of the links (part_of_links), and sums what mirrors it.
Trees all_reduce_trees(const Topology& topology, const std::vector<std::int64_t>& shares, std::size_t members,
                       std::int64_t max_pieces, double into = 0) {
  const Topology down = into > 0 ? part_of_links(topology, members, into) : topology;
  const Topology up = reversed(into > 0 ? part_of_links(topology, members, 1 - into) : topology);
  Trees trees{shares, trees_with_switches(down, shares, members, max_pieces),
              trees_with_switches(up, shares, members, max_pieces), 0};
  match_pieces(*trees.gather, *trees.scatter, shares);
  trees.seconds = seconds_of_both(topology, trees.gather, trees.scatter);
  return trees;
}

// The bandwidth of the slower direction of each of the first ranks.
std::vector<double> slower_directions(const Topology& topology, std::size_t ranks) {
  const std::vector<std::int32_t> devices = topology.devices();
  std::vector<double> in(topology.vertices.size(), 0), out(topology.vertices.size(), 0), slower;
  for (const TopologyLink& link : topology.links) {
    out[link.from] += link.bandwidth.bytes_per_second;
    in[link.to] += link.bandwidth.bytes_per_second;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) slower.push_back(std::min(in[devices[rank]], out[devices[rank]]));
  return slower;
}

// Who may add up pieces. Where ranks are unequal, the slow ones need not do so for others: they only send theirs and
// get the results; every limit between two bandwidths is tried. Switches that take part may do it instead of all of
// them.
std::vector<std::vector<std::int64_t>> shares_to_try(const Topology& topology, std::size_t members) {
  const std::vector<double> bandwidth = slower_directions(topology, members);
  const std::size_t switches = topology.devices().size() - members;
  std::vector<std::vector<std::int64_t>> all;
  for (const double limit : std::set<double>(bandwidth.begin(), bandwidth.end())) {
    std::vector<std::int64_t> shares;
    for (const double own : bandwidth) shares.push_back(own >= limit ? 1 : 0);
    if (!all.empty() && std::ranges::count(shares, 1) < 2) continue;
    shares.resize(members + switches, 0);
    all.push_back(std::move(shares));
  }
  if (switches > 0) {
    all.emplace_back(members, 0);
    all.back().resize(members + switches, 1);
  }
  return all;
}

Trees best_all_reduce_trees(const Topology& topology, std::size_t members, std::int64_t max_pieces) {
  std::optional<Trees> best;
  for (const std::vector<std::int64_t>& shares : shares_to_try(topology, members)) {
    // A result enters a switch once and leaves it for all n devices there, a sum the other way round: results need one
    // part in n + 1 of the links into it. Trees that fill all links by themselves would leave too little for the
    // others.
    std::vector<double> parts{0};
    if (topology.devices().size() > members) {
      const auto most = static_cast<double>(members);
      const double each = most / static_cast<double>(topology.devices().size() - members);
      parts.insert(parts.end(), {1 / (each + 1), 1 / (most + 1), 0.25, 0.5});
    }
    for (const double into : parts) {
      try {
        Trees trees = all_reduce_trees(topology, shares, members, max_pieces, into);
        if (!best || trees.seconds < best->seconds * (1 - 1e-9)) best = std::move(trees);
      } catch (const Error&) {  // the part of the links cannot be packed, say because whole KB/s leave a switch unequal
        if (into == 0) throw;
      }
    }
  }
  return *best;
}

// The ranks behind the members are switches.
Trees trees_for(const Topology& topology, std::size_t members, const SynthesisRequest& request) {
  if (request.kind == Collective::all_reduce) return best_all_reduce_trees(topology, members, request.max_pieces);
  std::vector<std::int64_t> equal(members, 1);
  equal.resize(topology.devices().size(), 0);
  Trees trees{equal, std::nullopt, std::nullopt, 0};
  if (request.kind == Collective::all_gather) {
    trees.gather = trees_with_switches(topology, equal, members, request.max_pieces);
  } else {
    trees.scatter = trees_with_switches(reversed(topology), equal, members, request.max_pieces);
  }
  const TreePacking& only = trees.gather ? *trees.gather : *trees.scatter;
  // What was spared at idle switches counts.
  trees.seconds = equal.size() == members ? only.seconds : seconds_of_both(topology, trees.gather, trees.scatter);
  return trees;
}

struct WiredTrees {
  Topology wiring;
  std::vector<std::string> switches;
  Trees trees;
};

// Switches take part in the way that is fastest, if any is as fast as without them.
WiredTrees best_wired_trees(const Topology& topology, const SynthesisRequest& request) {
  const std::size_t members = topology.devices().size();
  WiredTrees best{topology, {}, trees_for(topology, members, request)};
  if (!request.in_network) return best;
  std::vector<SwitchRanks> ways = switch_ranks_for(topology, request.kind);
  if (ways.empty()) {
    fail("topology '{}': has no switch that {} (in its file: \"multicasts\" and \"reduces\")", topology.name,
         what_switches_must_do(request.kind));
  }
  for (SwitchRanks& way : ways) {
    Trees trees = trees_for(way.topology, members, request);
    const double limit = best.trees.seconds * (best.switches.empty() ? 1 + 1e-9 : 1 - 1e-9);
    if (trees.seconds > limit) continue;
    best = {std::move(way.topology), std::move(way.names), std::move(trees)};
  }
  return best;
}

void check_request(const SynthesisRequest& request) {
  if (request.kind != Collective::all_gather && request.kind != Collective::reduce_scatter &&
      request.kind != Collective::all_reduce) {
    fail("collective '{}': all_gather, reduce_scatter and all_reduce are synthesised", name_of(request.kind));
  }
  if (request.parts < 1 || request.parts > kMaxParts) fail("parts {} is not in 1..{}", request.parts, kMaxParts);
  if (request.max_pieces < 1 || request.max_pieces > kMaxPiecesOfARank) {
    fail("pieces {} is not in 1..{}", request.max_pieces, kMaxPiecesOfARank);
  }
}

}  // namespace

Program program_in_parts(const Synthesis& made, const SynthesisRequest& request) {
  const TreePacking& any = made.gather ? *made.gather : *made.scatter;
  const std::vector<std::int64_t> first = first_pieces(any.pieces, request.parts);
  const std::int64_t members = std::ssize(made.wiring.devices()) - std::ssize(made.switches);
  const CollectiveSpec spec{request.kind, members, 0, first.back()};
  ProgramBuilder builder("synthesized", spec, request.in_place, std::ssize(made.switches));
  Holdings holdings(builder);
  const MessageRounds up = made.scatter ? rounds_of(*made.scatter, first, request.parts) : MessageRounds{};
  const MessageRounds down = made.gather ? rounds_of(*made.gather, first, request.parts) : MessageRounds{};
  // Results of one part travel while the next is added up.
  for (std::int64_t part = 0; part <= request.parts; ++part) {
    if (part < request.parts) reduce_part(holdings, up, part);
    if (part > 0) gather_part(holdings, down, part - 1);
  }
  holdings.settle();
  return std::move(builder).finish();
}

Synthesis synthesize(const Topology& topology, const SynthesisRequest& request) {
  check_request(request);
  WiredTrees wired = best_wired_trees(topology, request);
  Trees& trees = wired.trees;
  Synthesis result;
  result.seconds = trees.seconds;
  result.least = least_time(topology, request.kind, request.in_network);
  for (std::size_t rank = 0; rank < trees.shares.size(); ++rank) {
    if (trees.shares[rank] > 0) result.roots.push_back(static_cast<std::int64_t>(rank));
  }
  result.gather = std::move(trees.gather);
  result.scatter = std::move(trees.scatter);
  result.switches = std::move(wired.switches);
  result.wiring = std::move(wired.wiring);
  result.program = program_in_parts(result, request);
  return result;
}

}  // namespace weft
