#include "collective/synthesis/sketch_routes.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/error.hpp"
#include "collective/synthesis/linear_program.hpp"

namespace weft {
namespace {

constexpr int kReroutings = 3;
// Of the time, for a connection more or less: it decides between ways that are as fast.
constexpr double kPerConnection = 1e-4;
// More whole numbers than this are left to the other way: the solver would not end in time.
constexpr std::size_t kMostChoices = 6000;

using Turn = std::vector<std::int32_t>;  // where every rank goes

Turn turn_of(const RankRotation& rotation, std::int32_t ranks) {
  Turn turn;
  for (std::int64_t r = 0; r < ranks; ++r) {
    turn.push_back(static_cast<std::int32_t>((r % rotation.size + rotation.offset) % rotation.size +
                                             r / rotation.size * rotation.size));
  }
  return turn;
}

// For every rank, which rank's chunks go the same way, and the turn that takes that rank's to its own.
struct Likeness {
  std::vector<std::int32_t> first;
  std::vector<Turn> turn;
};

Likeness likeness_of(const LogicalTopology& logical, const Sketch& sketch) {
  std::vector<Turn> turns;
  for (const RankRotation& rotation : sketch.rotations) turns.push_back(turn_of(rotation, logical.ranks));
  Likeness like{std::vector<std::int32_t>(logical.ranks, -1), std::vector<Turn>(logical.ranks)};
  for (std::int32_t rank = 0; rank < logical.ranks; ++rank) {
    if (like.first[rank] >= 0) continue;
    like.first[rank] = rank;
    like.turn[rank].resize(logical.ranks);
    std::iota(like.turn[rank].begin(), like.turn[rank].end(), 0);
    std::vector<std::int32_t> open{rank};
    for (std::size_t i = 0; i < open.size(); ++i) {
      for (const Turn& turn : turns) {
        const std::int32_t next = turn[open[i]];
        if (like.first[next] >= 0) continue;
        like.first[next] = rank;
        for (const std::int32_t at : like.turn[open[i]]) like.turn[next].push_back(turn[at]);
        open.push_back(next);
      }
    }
  }
  return like;
}

std::int32_t turned(const LogicalTopology& logical, const Turn& turn, std::int32_t edge) {
  return logical.edge(turn[logical.edges[edge].from], turn[logical.edges[edge].to]);
}

void check_turns(const LogicalTopology& logical, const Sketch& sketch) {
  for (const RankRotation& rotation : sketch.rotations) {
    if (rotation.size < 1 || rotation.offset < 1 || logical.ranks % rotation.size != 0) {
      fail("{}: symmetry_offsets [{}, {}]: is not a step round blocks that divide {} ranks", sketch.name,
           rotation.offset, rotation.size, logical.ranks);
    }
    const Turn turn = turn_of(rotation, logical.ranks);
    for (std::size_t e = 0; e < logical.edges.size(); ++e) {
      const LogicalEdge& edge = logical.edges[e];
      if (turned(logical, turn, static_cast<std::int32_t>(e)) >= 0) continue;
      fail("{}: symmetry_offsets [{}, {}]: rank {} sends to rank {}, but rank {} may not send to rank {}", sketch.name,
           rotation.offset, rotation.size, edge.from, edge.to, turn[edge.from], turn[edge.to]);
    }
  }
}

// Loads of the links in seconds, and who is connected with whom.
class Loads {
 public:
  Loads(const LogicalTopology& logical, double bytes)
      : logical_(logical), bytes_(bytes), seconds_(logical.links, 0), used_(logical.edges.size(), 0) {}

  void add(std::int32_t edge, int times) {
    const LogicalEdge& own = logical_.edges[edge];
    for (const auto& [link, per_byte] : own.links) seconds_[link] += times * (own.busy_latency + per_byte * bytes_);
    used_[edge] += times;
  }
  // The busiest link of an edge once the edge carries one chunk more.
  double busiest_with(std::int32_t edge) const {
    double most = 0;
    const LogicalEdge& own = logical_.edges[edge];
    for (const auto& [link, per_byte] : own.links) {
      most = std::max(most, seconds_[link] + own.busy_latency + per_byte * bytes_);
    }
    return most;
  }
  bool is_used(std::int32_t edge) const { return used_[edge] > 0; }

 private:
  const LogicalTopology& logical_;
  double bytes_;
  std::vector<double> seconds_;
  std::vector<int> used_;
};

// The tree of one chunk, grown from its source: each time the edge over which a new rank has the chunk first, counting
// the load of links as if it had to wait for all of it.
RoutedChunk grown(const LogicalTopology& logical, const Sketch& sketch, std::int32_t source, const Loads& loads,
                  double bytes) {
  RoutedChunk chunk{source, {}};
  std::vector<double> arrival(logical.ranks, -1);
  std::vector<bool> entered(*std::ranges::max_element(logical.node) + 1, false);  // nodes, over a crossing
  arrival[source] = 0;
  Loads own = loads;
  while (std::ssize(chunk.edges) + 1 < logical.ranks) {
    std::int32_t best = -1;
    double least = 0;
    for (std::int32_t e = 0; e < std::ssize(logical.edges); ++e) {
      const LogicalEdge& edge = logical.edges[e];
      if (arrival[edge.from] < 0 || arrival[edge.to] >= 0 || !may_carry(logical, sketch, source, e)) continue;
      if (logical.crosses(e) && entered[logical.node[edge.to]]) continue;
      double time = std::max(arrival[edge.from] + edge.alone(bytes), own.busiest_with(e));
      const bool through_switch = edge.links.size() > 1;
      if (through_switch && sketch.switch_connections != SwitchConnections::any && !own.is_used(e)) {
        time *= sketch.switch_connections == SwitchConnections::few ? 1 + kPerConnection : 1 - kPerConnection;
      }
      if (best >= 0 && time >= least) continue;
      best = e;
      least = time;
    }
    if (best < 0) {  // what is left is reached from another node only
      if (std::ranges::find(entered, true) == entered.end()) {
        fail("{}: chunks of rank {} do not reach all ranks over the links that the sketch leaves", sketch.name, source);
      }
      entered.assign(entered.size(), false);
      continue;
    }
    const LogicalEdge& edge = logical.edges[best];
    arrival[edge.to] = arrival[edge.from] + edge.alone(bytes);
    if (logical.crosses(best)) entered[logical.node[edge.to]] = true;
    own.add(best, 1);
    chunk.edges.push_back(best);
  }
  return chunk;
}

RoutedChunk turned(const LogicalTopology& logical, const Turn& turn, const RoutedChunk& chunk) {
  RoutedChunk result{turn[chunk.source], {}};
  for (const std::int32_t edge : chunk.edges) result.edges.push_back(turned(logical, turn, edge));
  return result;
}

std::vector<RoutedChunk> routed_one_by_one(const LogicalTopology& logical, const Sketch& sketch, double bytes) {
  const Likeness like = likeness_of(logical, sketch);
  std::vector<RoutedChunk> chunks(logical.ranks * sketch.chunks), best;
  Loads loads(logical, bytes);
  const auto apply = [&](std::int32_t first, std::int64_t k, int times) {
    for (std::int32_t rank = 0; rank < logical.ranks; ++rank) {
      if (like.first[rank] != first) continue;
      for (const std::int32_t edge : chunks[rank * sketch.chunks + k].edges) loads.add(edge, times);
    }
  };
  for (int round = 0; round <= kReroutings; ++round) {
    for (std::int64_t k = 0; k < sketch.chunks; ++k) {
      for (std::int32_t first = 0; first < logical.ranks; ++first) {
        if (like.first[first] != first) continue;
        if (round > 0) apply(first, k, -1);
        const RoutedChunk own = grown(logical, sketch, first, loads, bytes);
        for (std::int32_t rank = 0; rank < logical.ranks; ++rank) {
          if (like.first[rank] == first) chunks[rank * sketch.chunks + k] = turned(logical, like.turn[rank], own);
        }
        apply(first, k, 1);
      }
    }
    const bool is_better =
        best.empty() || relaxed_seconds(logical, chunks, bytes) < relaxed_seconds(logical, best, bytes);
    if (is_better) best = chunks;
  }
  return best;
}

// TACCL's routing: a tree for every chunk, given by whole numbers, and the time that both arrivals and loads bound. In
// microseconds, so that numbers are near 1.
class RoutingProgram {
 public:
  RoutingProgram(const LogicalTopology& logical, const Sketch& sketch, double bytes, double most)
      : logical_(logical), sketch_(sketch), bytes_(bytes), most_(most * 1e6), like_(likeness_of(logical, sketch)) {
    time_ = program_.add_column({1, 0, most_, false, {}});
    for (std::int32_t source = 0; source < logical.ranks; ++source) {
      for (std::int64_t k = 0; k < sketch.chunks; ++k) {
        if (like_.first[source] == source) add_chunk(source, k);
      }
    }
    add_loads();
    if (sketch.switch_connections != SwitchConnections::any) add_connections();
  }

  std::size_t choices() const { return taken_.size(); }

  std::optional<std::vector<RoutedChunk>> solved(double seconds) const {
    const auto values = solve(program_, seconds);
    if (!values) return std::nullopt;
    std::vector<RoutedChunk> chunks(logical_.ranks * sketch_.chunks);
    for (std::int32_t rank = 0; rank < logical_.ranks; ++rank) {
      for (std::int64_t k = 0; k < sketch_.chunks; ++k) {
        chunks[rank * sketch_.chunks + k] = turned(logical_, like_.turn[rank], tree_of(like_.first[rank], k, *values));
      }
    }
    return chunks;
  }

 private:
  using Choice = std::tuple<std::int32_t, std::int64_t, std::int32_t>;  // source, number of the chunk, edge

  void enter(std::int32_t column, std::int32_t row, double value) {
    program_.columns[column].entries.push_back({row, value});
  }

  void add_chunk(std::int32_t source, std::int64_t k) {
    std::vector<std::int32_t> arrival;
    for (std::int32_t rank = 0; rank < logical_.ranks; ++rank) {
      arrival.push_back(program_.add_column({0, 0, rank == source ? 0 : most_, false, {}}));
      if (rank == source) continue;
      const std::int32_t in_time = program_.add_row(0, kUnbounded);
      enter(time_, in_time, 1);
      enter(arrival.back(), in_time, -1);
    }
    std::vector<std::int32_t> once(logical_.ranks, -1);
    for (std::int32_t rank = 0; rank < logical_.ranks; ++rank) {
      if (rank != source) once[rank] = program_.add_row(1, 1);
    }
    for (std::int32_t e = 0; e < std::ssize(logical_.edges); ++e) {
      const LogicalEdge& edge = logical_.edges[e];
      if (edge.to == source || !may_carry(logical_, sketch_, source, e)) continue;
      const std::int32_t column = program_.add_column({0, 0, 1, true, {}});
      taken_[{source, k, e}] = column;
      enter(column, once[edge.to], 1);
      // Taken: the chunk is there only after it was here. arrival(to) - arrival(from) - (alone + most) taken >= -most.
      const std::int32_t later = program_.add_row(-most_, kUnbounded);
      enter(arrival[edge.to], later, 1);
      enter(arrival[edge.from], later, -1);
      enter(column, later, -(edge.alone(bytes_) * 1e6 + most_));
    }
  }

  std::int32_t column_of(std::int32_t source, std::int64_t k, std::int32_t edge) const {
    // The edge of the first of its like that is turned onto this one.
    const Turn& turn = like_.turn[source];
    Turn back(turn.size());
    for (std::size_t r = 0; r < turn.size(); ++r) back[turn[r]] = static_cast<std::int32_t>(r);
    const auto found = taken_.find({like_.first[source], k, turned(logical_, back, edge)});
    return found == taken_.end() ? -1 : found->second;
  }

  void add_loads() {
    std::map<std::int32_t, std::map<std::int32_t, double>> loads;  // by link and column
    for (std::int32_t e = 0; e < std::ssize(logical_.edges); ++e) {
      for (std::int32_t source = 0; source < logical_.ranks; ++source) {
        for (std::int64_t k = 0; k < sketch_.chunks; ++k) {
          const std::int32_t column = column_of(source, k, e);
          if (column < 0) continue;
          const LogicalEdge& edge = logical_.edges[e];
          for (const auto& [link, per_byte] : edge.links) {
            loads[link][column] += (edge.busy_latency + per_byte * bytes_) * 1e6;
          }
        }
      }
    }
    for (const auto& [link, columns] : loads) {
      const std::int32_t row = program_.add_row(0, kUnbounded);
      enter(time_, row, 1);
      for (const auto& [column, seconds] : columns) enter(column, row, -seconds);
    }
  }

  // Whether an edge through a switch is used at all.
  void add_connections() {
    const double cost = (sketch_.switch_connections == SwitchConnections::few ? 1 : -1) * kPerConnection * most_;
    for (std::int32_t e = 0; e < std::ssize(logical_.edges); ++e) {
      if (logical_.edges[e].links.size() < 2) continue;
      const std::int32_t used = program_.add_column({cost, 0, 1, false, {}});
      const std::int32_t not_more = program_.add_row(0, kUnbounded);  // the chunks on it - used >= 0
      enter(used, not_more, -1);
      std::map<std::int32_t, double> columns;
      for (std::int32_t source = 0; source < logical_.ranks; ++source) {
        for (std::int64_t k = 0; k < sketch_.chunks; ++k) {
          if (const std::int32_t column = column_of(source, k, e); column >= 0) columns[column] += 1;
        }
      }
      for (const auto& [column, chunks] : columns) {
        enter(column, not_more, chunks);
        const std::int32_t at_least = program_.add_row(0, kUnbounded);  // used - taken >= 0
        enter(used, at_least, 1);
        enter(column, at_least, -1);
      }
    }
  }

  RoutedChunk tree_of(std::int32_t source, std::int64_t k, const std::vector<double>& values) const {
    RoutedChunk chunk{source, {}};
    std::vector<bool> has(logical_.ranks, false);
    has[source] = true;
    for (bool grows = true; grows;) {
      grows = false;
      for (std::int32_t e = 0; e < std::ssize(logical_.edges); ++e) {
        const auto found = taken_.find({source, k, e});
        if (found == taken_.end() || values[found->second] < 0.5) continue;
        if (!has[logical_.edges[e].from] || has[logical_.edges[e].to]) continue;
        has[logical_.edges[e].to] = grows = true;
        chunk.edges.push_back(e);
      }
    }
    return chunk;
  }

  const LogicalTopology& logical_;
  const Sketch& sketch_;
  double bytes_, most_;
  Likeness like_;
  LinearProgram program_;
  std::int32_t time_ = 0;
  std::map<Choice, std::int32_t> taken_;
};

}  // namespace

bool may_carry(const LogicalTopology& logical, const Sketch& sketch, std::int32_t source, std::int32_t edge) {
  if (!logical.crosses(edge)) return true;
  const std::int32_t from = logical.edges[edge].from;
  if (sketch.sends_for.empty() || logical.node[from] != logical.node[source]) return true;
  const auto sender = sketch.sends_for.find(logical.place[from]);
  if (sender == sketch.sends_for.end()) return false;
  return std::ranges::find(sender->second, logical.place[source]) != sender->second.end();
}

double relaxed_seconds(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes) {
  double last = 0;
  std::vector<double> loads(logical.links, 0);
  for (const RoutedChunk& chunk : chunks) {
    std::map<std::int32_t, double> arrival{{chunk.source, 0}};
    for (const std::int32_t e : chunk.edges) {
      const LogicalEdge& edge = logical.edges[e];
      arrival[edge.to] = arrival.at(edge.from) + edge.alone(chunk_bytes);
      last = std::max(last, arrival[edge.to]);
      for (const auto& [link, per_byte] : edge.links) loads[link] += edge.busy_latency + per_byte * chunk_bytes;
    }
  }
  return std::max(last, loads.empty() ? 0 : *std::ranges::max_element(loads));
}

SketchRoutes route_chunks(const LogicalTopology& logical, const Sketch& sketch, const RoutingOptions& options) {
  check_turns(logical, sketch);
  SketchRoutes routes;
  routes.chunks = routed_one_by_one(logical, sketch, options.chunk_bytes);
  routes.seconds = relaxed_seconds(logical, routes.chunks, options.chunk_bytes);
  if (options.solver_seconds <= 0 || !has_linear_solver()) return routes;
  const RoutingProgram program(logical, sketch, options.chunk_bytes, routes.seconds * (1 + 1e-6));
  if (program.choices() > kMostChoices) return routes;
  auto solved = program.solved(options.solver_seconds);
  if (!solved) return routes;
  const bool whole = std::ranges::all_of(
      *solved, [&](const RoutedChunk& chunk) { return std::ssize(chunk.edges) + 1 == logical.ranks; });
  if (!whole) return routes;  // the solver's tolerance broke a tree
  const double seconds = relaxed_seconds(logical, *solved, options.chunk_bytes);
  if (seconds > routes.seconds * (1 + 1e-6)) return routes;
  return {std::move(*solved), seconds, true};
}

}  // namespace weft
