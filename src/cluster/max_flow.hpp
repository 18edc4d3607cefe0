// The largest flow between two vertices of a graph with whole capacities, and the cut that bounds it (Dinic, 1970).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

class MaxFlow {
 public:
  static constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max() / 4;

  explicit MaxFlow(std::size_t vertices) : first_(vertices, -1) {}

  // Adds an edge in one direction.
  void add_edge(std::int32_t from, std::int32_t to, std::int64_t capacity);
  // Every call begins without any flow. A flow of `enough` ends the search.
  std::int64_t run(std::int32_t source, std::int32_t sink, std::int64_t enough = kUnlimited);
  // After a run that found less than enough: the vertices on the source's side of a smallest cut.
  std::vector<bool> source_side() const;

 private:
  struct Edge {
    std::int32_t to, next;
    std::int64_t capacity, left;
  };
  bool find_levels(std::int32_t source, std::int32_t sink);
  std::int64_t push(std::int32_t vertex, std::int32_t sink, std::int64_t limit);

  std::vector<Edge> edges_;          // the reverse of edge i is i ^ 1
  std::vector<std::int32_t> first_;  // edges of a vertex, as lists
  std::vector<std::int32_t> level_, at_, queue_;
};

}  // namespace weft
