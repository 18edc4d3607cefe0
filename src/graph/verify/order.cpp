// No operation waits for itself: dependencies of distance 0 have no cycle, across classes too.
#include <algorithm>
#include <map>

#include "graph/operation_part.hpp"
#include "graph/verify/rules.hpp"

namespace weft {
namespace {

bool waits_for(const StepGraph& graph, const Operation& reader, ValueId value, OpId writer) {
  return overlap(read_slice_of(graph, reader, value), slice_of(graph, graph.op(writer), value));
}

// Members of one transfer finish together, so they are one node.
class DependencyGraph {
 public:
  explicit DependencyGraph(const StepGraph& graph) : graph_(graph), node_of_(graph.operations.size()) {
    std::map<std::int32_t, std::size_t> node_of_transfer;
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      const auto& communication = graph.operations[i].communication;
      const bool shared = communication && communication->transfer >= 0;
      node_of_[i] = shared ? node_of_transfer.try_emplace(communication->transfer, i).first->second : i;
    }
    const std::vector<std::vector<OpId>> writers = writers_of(graph);
    before_.resize(graph.operations.size());
    after_.resize(graph.operations.size());
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      for (const Read& read : graph.operations[i].reads) {
        if (read.distance != 0) continue;
        for (const OpId writer : writers[read.value.index()]) {
          if (waits_for(graph, graph.operations[i], read.value, writer)) connect(node_of_[writer.index()], node_of_[i]);
        }
      }
    }
  }

  // Throws where a cycle exists, naming the operations on it.
  void reject_cycles() const {
    std::vector<std::size_t> waiting(before_.size()), ready;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      waiting[i] = before_[i].size();
      if (waiting[i] == 0) ready.push_back(i);
    }
    std::size_t done = 0;
    while (!ready.empty()) {
      const std::size_t node = ready.back();
      ready.pop_back();
      ++done;
      for (const std::size_t next : after_[node]) {
        if (--waiting[next] == 0) ready.push_back(next);
      }
    }
    if (done < before_.size()) reject_cycle_among(waiting);
  }

 private:
  void connect(std::size_t from, std::size_t to) {
    after_[from].push_back(to);
    before_[to].push_back(from);
  }

  // Every waiting node has a predecessor that still waits, so following them backwards ends in a cycle.
  [[noreturn]] void reject_cycle_among(const std::vector<std::size_t>& waiting) const {
    std::size_t node = 0;
    while (waiting[node] == 0) ++node;
    std::vector<std::size_t> path;
    auto again = path.end();
    while ((again = std::find(path.begin(), path.end(), node)) == path.end()) {
      path.push_back(node);
      node = *std::find_if(before_[node].begin(), before_[node].end(), [&](std::size_t p) { return waiting[p] > 0; });
    }
    constexpr std::ptrdiff_t kShown = 6;
    std::string through;
    for (auto it = again + 1; it != path.end() && it - again < kShown; ++it) {
      through += fmt::format("{}{}", through.empty() ? ", through " : ", ", in_words(graph_, graph_.operations[*it]));
    }
    reject(graph_, graph_.operations[*again], "waits for itself{}", through);
  }

  const StepGraph& graph_;
  std::vector<std::size_t> node_of_;
  std::vector<std::vector<std::size_t>> before_, after_;  // by node
};

}  // namespace

void verify_order(const StepGraph& graph) {
  DependencyGraph(graph).reject_cycles();
  const std::vector<std::vector<OpId>> writers = writers_of(graph);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    for (const Read& read : graph.operations[i].reads) {
      if (read.distance != 0) continue;
      for (const OpId writer : writers[read.value.index()]) {
        if (writer.index() < i || !waits_for(graph, graph.operations[i], read.value, writer)) continue;
        reject(graph, graph.operations[i], "is stored before {}, which writes '{}' for it", describe(graph.op(writer)),
               graph.value(read.value).name);
      }
    }
  }
}

}  // namespace weft
