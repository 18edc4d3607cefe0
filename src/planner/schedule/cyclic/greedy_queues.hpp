// Simulates iteration after iteration: a queue that is free takes the most urgent operation that is ready.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"

namespace weft {

class GreedyQueues {
 public:
  // `graph` must outlive this. Ties go to the lower index.
  GreedyQueues(const CyclicGraph& graph, std::vector<double> urgency);

  // Runs one more iteration, on queues and links as the earlier iterations left them. Returns the operations in the
  // order in which they started, which is a sequence; it lacks some where edges of distance 0 form a cycle.
  std::vector<std::int32_t> run_iteration();

 private:
  struct LessUrgent {
    const std::vector<double>* urgency;
    bool operator()(std::int32_t a, std::int32_t b) const;
  };
  using Ready = std::priority_queue<std::int32_t, std::vector<std::int32_t>, LessUrgent>;
  enum class Kind : std::uint8_t { free, ended, may_start };
  struct Event {
    double time;
    Kind kind;
    std::int32_t which;  // a resource of the previous iteration that becomes free; else an operation
    auto operator<=>(const Event&) const = default;
  };

  void may_start(std::int32_t operation, double now);
  void ended(std::int32_t operation, double now);
  void freed(std::int32_t resource);
  void start_what_can(double now);
  void touch(std::int32_t queue);

  const CyclicGraph& graph_;
  std::vector<double> urgency_;
  std::vector<Ready> ready_;                        // by queue
  std::vector<double> free_;                        // by resource: from when on
  std::vector<double> ends_, previous_ends_;        // by operation
  std::vector<std::int32_t> missing_;               // by operation: of those it waits for in this iteration
  std::vector<std::vector<std::int32_t>> waiting_;  // by resource: queues that wait for it to be free
  std::vector<std::int32_t> touched_;               // queues where something changed
  std::vector<char> is_touched_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::int32_t> started_;
};

}  // namespace weft
