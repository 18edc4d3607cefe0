#include "collective/synthesis/synthesized_program.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "collective/algorithm/holdings.hpp"

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

// Links that carry sums one way and results the other are busy with both at once.
double seconds_of_both(const Topology& topology, const TreePacking& gather, const TreePacking& scatter) {
  const std::vector<double> down = link_loads(topology, gather), up = link_loads(reversed(topology), scatter);
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

Trees all_reduce_trees(const Topology& topology, const std::vector<std::int64_t>& shares, std::int64_t max_pieces) {
  Trees trees{shares, pack_trees(topology, shares, max_pieces), pack_trees(reversed(topology), shares, max_pieces), 0};
  match_pieces(*trees.gather, *trees.scatter, shares);
  trees.seconds = seconds_of_both(topology, *trees.gather, *trees.scatter);
  return trees;
}

// The bandwidth of each rank's slower direction.
std::vector<double> slower_directions(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  std::vector<double> in(topology.vertices.size(), 0), out(topology.vertices.size(), 0), slower;
  for (const TopologyLink& link : topology.links) {
    out[link.from] += link.bandwidth.bytes_per_second;
    in[link.to] += link.bandwidth.bytes_per_second;
  }
  for (const std::int32_t device : devices) slower.push_back(std::min(in[device], out[device]));
  return slower;
}

// Where ranks are unequal, the slow ones need not add up pieces for others: they only send theirs and get the results.
// Every limit between two bandwidths is tried.
Trees best_all_reduce_trees(const Topology& topology, std::int64_t max_pieces) {
  const std::vector<double> bandwidth = slower_directions(topology);
  const std::set<double> limits(bandwidth.begin(), bandwidth.end());
  std::optional<Trees> best;
  for (const double limit : limits) {
    std::vector<std::int64_t> shares;
    for (const double own : bandwidth) shares.push_back(own >= limit ? 1 : 0);
    if (best && std::ranges::count(shares, 1) < 2) continue;
    Trees trees = all_reduce_trees(topology, shares, max_pieces);
    if (!best || trees.seconds < best->seconds * (1 - 1e-9)) best = std::move(trees);
  }
  return *best;
}

Trees trees_for(const Topology& topology, const SynthesisRequest& request) {
  const std::vector<std::int64_t> equal(topology.devices().size(), 1);
  if (request.kind == Collective::all_reduce) return best_all_reduce_trees(topology, request.max_pieces);
  Trees trees{equal, std::nullopt, std::nullopt, 0};
  if (request.kind == Collective::all_gather) {
    trees.gather = pack_trees(topology, equal, request.max_pieces);
    trees.seconds = trees.gather->seconds;
  } else {
    trees.scatter = pack_trees(reversed(topology), equal, request.max_pieces);
    trees.seconds = trees.scatter->seconds;
  }
  return trees;
}

// An all_reduce brings the whole buffer out of every set of devices that a cut separates. And of every piece each rank
// but one sends a sum, and each but one gets the result: devices send 2 (N-1) buffers in all.
double least_of_all_reduce(const Topology& topology) {
  const std::vector<std::int32_t> devices = topology.devices();
  std::vector<std::int64_t> one(devices.size(), 0);
  double slowest = 0, out = 0, in = 0;
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    one[rank] = 1;
    const GatherCut cut = slowest_gather_cut(topology, one);
    slowest = std::max(slowest, 1 / (static_cast<double>(cut.out_bandwidth) * kBandwidthUnit));
    one[rank] = 0;
  }
  for (const TopologyLink& link : topology.links) {
    if (topology.vertices[link.from].kind == VertexKind::device) out += link.bandwidth.bytes_per_second;
    if (topology.vertices[link.to].kind == VertexKind::device) in += link.bandwidth.bytes_per_second;
  }
  return std::max(slowest, 2 * static_cast<double>(devices.size() - 1) / std::min(out, in));
}

double least_of(const Topology& topology, const Trees& trees) {
  if (!trees.scatter) return trees.gather->least_seconds;
  return trees.gather ? least_of_all_reduce(topology) : trees.scatter->least_seconds;
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

Synthesis synthesize(const Topology& topology, const SynthesisRequest& request) {
  check_request(request);
  Trees trees = trees_for(topology, request);
  const TreePacking& any = trees.gather ? *trees.gather : *trees.scatter;
  const std::vector<std::int64_t> first = first_pieces(any.pieces, request.parts);
  const CollectiveSpec spec{request.kind, static_cast<std::int64_t>(any.pieces.size()), 0, first.back()};
  ProgramBuilder builder("synthesized", spec, request.in_place);
  Holdings holdings(builder);
  const MessageRounds up = trees.scatter ? rounds_of(*trees.scatter, first, request.parts) : MessageRounds{};
  const MessageRounds down = trees.gather ? rounds_of(*trees.gather, first, request.parts) : MessageRounds{};
  // Results of one part travel while the next is added up.
  for (std::int64_t part = 0; part <= request.parts; ++part) {
    if (part < request.parts) reduce_part(holdings, up, part);
    if (part > 0) gather_part(holdings, down, part - 1);
  }
  holdings.settle();
  Synthesis result{std::move(builder).finish(), {}, {}, trees.seconds, least_of(topology, trees), {}};
  for (std::size_t rank = 0; rank < trees.shares.size(); ++rank) {
    if (trees.shares[rank] > 0) result.roots.push_back(static_cast<std::int64_t>(rank));
  }
  result.gather = std::move(trees.gather);
  result.scatter = std::move(trees.scatter);
  return result;
}

}  // namespace weft
