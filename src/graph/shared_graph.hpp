// A step graph that many plans of one model and layout share: copying it copies a pointer.
#pragma once

#include <memory>
#include <utility>

#include "graph/step_graph.hpp"

namespace weft {

class SharedGraph {
 public:
  SharedGraph(StepGraph&& graph) : graph_(std::make_shared<const StepGraph>(std::move(graph))) {}
  // Explicit, because it copies the graph.
  explicit SharedGraph(const StepGraph& graph) : graph_(std::make_shared<const StepGraph>(graph)) {}

  operator const StepGraph&() const { return *graph_; }
  const StepGraph& operator*() const { return *graph_; }
  const StepGraph* operator->() const { return graph_.get(); }

 private:
  std::shared_ptr<const StepGraph> graph_;
};

}  // namespace weft
