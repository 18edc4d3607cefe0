#include "collective/synthesis/sketch_times.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

namespace weft {
namespace {

constexpr int kMostTrials = 400;  // of joined pairs, where not all combinations are tried

// When each link is free again.
class FreeLinks {
 public:
  FreeLinks(const LogicalTopology& logical, double bytes) : logical_(logical), bytes_(bytes), free_(logical.links, 0) {}

  double start(std::int32_t edge, double ready) const {
    for (const auto& [link, per_byte] : logical_.edges[edge].links) ready = std::max(ready, free_[link]);
    return ready;
  }
  void take(std::int32_t edge, double start, std::size_t chunks) {
    const double bytes = bytes_ * static_cast<double>(chunks);
    const LogicalEdge& own = logical_.edges[edge];
    for (const auto& [link, per_byte] : own.links) free_[link] = start + own.busy_latency + per_byte * bytes;
  }
  double arrival(std::int32_t edge, double start, std::size_t chunks) const {
    return start + logical_.edges[edge].alone(bytes_ * static_cast<double>(chunks));
  }

 private:
  const LogicalTopology& logical_;
  double bytes_;
  std::vector<double> free_;
};

// By place among the chunk's edges: the longest way that its chunk has before it, this edge included.
std::vector<double> ways_before(const LogicalTopology& logical, const RoutedChunk& chunk, double bytes) {
  std::map<std::int32_t, double> beyond;  // of a rank
  std::vector<double> before(chunk.edges.size(), 0);
  for (std::size_t i = chunk.edges.size(); i-- > 0;) {
    const LogicalEdge& edge = logical.edges[chunk.edges[i]];
    before[i] = edge.alone(bytes) + beyond[edge.to];
    beyond[edge.from] = std::max(beyond[edge.from], before[i]);
  }
  return before;
}

bool by_start(const SketchMessage& a, const SketchMessage& b) {
  return std::tie(a.start, a.edge, a.chunks) < std::tie(b.start, b.edge, b.chunks);
}

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;  // of messages, by their numbers

// Messages on one edge that follow each other and whose chunks lie side by side.
Pairs neighbours(const std::vector<SketchMessage>& messages) {
  std::map<std::int32_t, std::size_t> last;  // by edge
  Pairs pairs;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto [known, is_first] = last.try_emplace(messages[i].edge, i);
    if (is_first) continue;
    const SketchMessage& before = messages[known->second];
    const bool side_by_side = before.chunks.back() + 1 == messages[i].chunks.front() ||
                              messages[i].chunks.back() + 1 == before.chunks.front();
    if (side_by_side) pairs.emplace_back(known->second, i);
    known->second = i;
  }
  return pairs;
}

// The second of each pair goes with the first. The joined message has the turn of the later one.
std::vector<SketchMessage> joined(const std::vector<SketchMessage>& messages, const Pairs& pairs) {
  std::vector<SketchMessage> result = messages;
  for (const auto& [first, second] : pairs) {  // ascending in their second, so that runs grow at their end
    SketchMessage& into = result[second];
    into.chunks.insert(into.chunks.end(), result[first].chunks.begin(), result[first].chunks.end());
    std::ranges::sort(into.chunks);
    result[first].chunks.clear();
  }
  std::erase_if(result, [](const SketchMessage& message) { return message.chunks.empty(); });
  const bool in_one_piece = std::ranges::all_of(
      result, [](const SketchMessage& m) { return m.chunks.back() - m.chunks.front() + 1 == std::ssize(m.chunks); });
  return in_one_piece ? result : std::vector<SketchMessage>{};
}

// Of the pairs those that make runs of at most so many messages, everywhere or only on edges between nodes.
Pairs in_runs(const LogicalTopology& logical, const std::vector<SketchMessage>& messages, const Pairs& pairs,
              std::int64_t most, bool crossings_only) {
  Pairs some;
  std::map<std::size_t, std::int64_t> length;  // of the run that ends at a message
  for (const auto& pair : pairs) {
    const std::int64_t before = length.contains(pair.first) ? length[pair.first] : 1;
    if (before >= most || (crossings_only && !logical.crosses(messages[pair.first].edge))) continue;
    length[pair.second] = before + 1;
    some.push_back(pair);
  }
  return some;
}

}  // namespace

TimedMessages order_chunks(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                           ChunkOrder order) {
  struct Next {
    std::int32_t chunk = 0, edge = 0;
    double way = 0, ready = 0;
  };
  std::vector<std::vector<double>> ways;
  std::vector<Next> open;
  FreeLinks links(logical, chunk_bytes);
  const auto leave = [&](std::int32_t chunk, std::int32_t rank, double ready) {
    for (std::size_t i = 0; i < chunks[chunk].edges.size(); ++i) {
      const std::int32_t edge = chunks[chunk].edges[i];
      if (logical.edges[edge].from == rank) open.push_back({chunk, edge, ways[chunk][i], ready});
    }
  };
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    ways.push_back(ways_before(logical, chunks[c], chunk_bytes));
    leave(static_cast<std::int32_t>(c), chunks[c].source, 0);
  }
  TimedMessages result;
  while (!open.empty()) {
    std::size_t best = 0;
    std::tuple<double, double, std::int32_t, std::int32_t> least;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const Next& next = open[i];
      const double start = links.start(next.edge, next.ready);
      const auto key = order == ChunkOrder::longest_way_first ? std::tuple(-next.way, start, next.edge, next.chunk)
                                                              : std::tuple(start, -next.way, next.edge, next.chunk);
      if (i > 0 && key >= least) continue;
      best = i;
      least = key;
    }
    const Next next = open[best];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
    const double start = links.start(next.edge, next.ready);
    const double arrival = links.arrival(next.edge, start, 1);
    links.take(next.edge, start, 1);
    result.messages.push_back({next.edge, {next.chunk}, start, arrival});
    result.seconds = std::max(result.seconds, arrival);
    leave(next.chunk, logical.edges[next.edge].to, arrival);
  }
  std::ranges::sort(result.messages, by_start);
  return result;
}

TimedMessages timed(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                    std::vector<SketchMessage> messages) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::size_t> brings;  // chunk and rank: the message
  std::vector<std::size_t> missing(messages.size(), 0);
  std::vector<std::vector<std::size_t>> then(messages.size());
  for (std::size_t m = 0; m < messages.size(); ++m) {
    for (const std::int32_t chunk : messages[m].chunks) brings[{chunk, logical.edges[messages[m].edge].to}] = m;
  }
  for (std::size_t m = 0; m < messages.size(); ++m) {
    const std::int32_t from = logical.edges[messages[m].edge].from;
    for (const std::int32_t chunk : messages[m].chunks) {
      if (chunks[chunk].source == from) continue;
      then[brings.at({chunk, from})].push_back(m);
      ++missing[m];
    }
  }
  std::vector<double> ready(messages.size(), 0);
  const auto later = [&](std::size_t a, std::size_t b) {
    return std::tuple(messages[a].start, a) > std::tuple(messages[b].start, b);
  };
  std::priority_queue<std::size_t, std::vector<std::size_t>, decltype(later)> open(later);
  for (std::size_t m = 0; m < messages.size(); ++m) {
    if (missing[m] == 0) open.push(m);
  }
  FreeLinks links(logical, chunk_bytes);
  TimedMessages result;
  while (!open.empty()) {
    const std::size_t m = open.top();
    open.pop();
    SketchMessage sent = messages[m];
    sent.start = links.start(sent.edge, ready[m]);
    sent.arrival = links.arrival(sent.edge, sent.start, sent.chunks.size());
    links.take(sent.edge, sent.start, sent.chunks.size());
    for (const std::size_t next : then[m]) {
      ready[next] = std::max(ready[next], sent.arrival);
      if (--missing[next] == 0) open.push(next);
    }
    result.seconds = std::max(result.seconds, sent.arrival);
    result.messages.push_back(std::move(sent));
  }
  if (result.messages.size() < messages.size()) return {{}, std::numeric_limits<double>::infinity()};
  std::ranges::sort(result.messages, by_start);
  return result;
}

TimedMessages join_chunks(const LogicalTopology& logical, const std::vector<RoutedChunk>& chunks, double chunk_bytes,
                          const TimedMessages& alone) {
  const bool gains = std::ranges::any_of(logical.edges, [](const LogicalEdge& edge) { return edge.busy_latency > 0; });
  if (!gains) return alone;  // only the latencies of links are spared
  TimedMessages best = timed(logical, chunks, chunk_bytes, alone.messages);
  if (alone.seconds < best.seconds) best = alone;
  const auto try_joined = [&](const std::vector<SketchMessage>& from, const Pairs& pairs) {
    std::vector<SketchMessage> messages = joined(from, pairs);
    if (messages.empty()) return false;
    TimedMessages trial = timed(logical, chunks, chunk_bytes, std::move(messages));
    if (trial.seconds >= best.seconds * (1 - 1e-12)) return false;
    best = std::move(trial);
    return true;
  };
  const std::vector<SketchMessage> single = alone.messages;
  const Pairs pairs = neighbours(single);
  if (pairs.size() <= kMostExact) {
    for (std::uint32_t set = 1; set < 1U << pairs.size(); ++set) {
      Pairs some;
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        if ((set >> i & 1U) != 0) some.push_back(pairs[i]);
      }
      try_joined(single, some);
    }
    return best;
  }
  // Where all ranks do the same, joining a single pair changes nothing: first all runs of a length.
  for (const bool crossings_only : {true, false}) {
    for (const std::int64_t most : {2, 4, 8, 1024}) {
      const Pairs some = in_runs(logical, single, pairs, most, crossings_only);
      if (!some.empty()) try_joined(single, some);
    }
  }
  int trials = 0;
  for (bool helps = true; helps && trials < kMostTrials;) {
    helps = false;
    const std::vector<SketchMessage> before = best.messages;
    for (const auto& pair : neighbours(before)) {
      if (++trials > kMostTrials) break;
      if (try_joined(before, {pair})) {
        helps = true;
        break;
      }
    }
  }
  return best;
}

}  // namespace weft
