// Simulates iteration after iteration: a queue that is free takes the most urgent operation that is ready. Compute may
// feed the busiest resource instead: where that would run dry before anything could reach it, compute takes what leads
// there soonest.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "planner/schedule/cyclic/cyclic_graph.hpp"

namespace weft {

class GreedyQueues {
 public:
  // `graph` must outlive this. Ties go to the lower index.
  GreedyQueues(const CyclicGraph& graph, std::vector<double> urgency, bool feeds_busiest = false);

  // Runs one more iteration, on queues and links as the earlier iterations left them. Returns the operations in the
  // order in which they started, which is a sequence; it lacks some where edges of distance 0 form a cycle.
  std::vector<std::int32_t> run_iteration();

 private:
  struct LessUrgent {
    const std::vector<double>* urgency;
    bool operator()(std::int32_t a, std::int32_t b) const;
  };
  // What compute does for the busiest resource.
  struct Feeding {
    std::int32_t resource = -1;    // -1: nothing
    std::vector<double> nearness;  // by operation: minus the least time from its start to that of an operation there
    double ready_ns = 0;           // of what waits for the resource alone
  };
  using Ready = std::priority_queue<std::int32_t, std::vector<std::int32_t>, LessUrgent>;
  enum class Kind : std::uint8_t { free, ended, may_start };
  // Those of one instant come in any order: nothing starts before the last of them.
  struct Event {
    double time;
    Kind kind;
    std::int32_t which;  // a resource of the previous iteration that becomes free; else an operation
    bool operator>(const Event& other) const { return time > other.time; }
  };

  void may_start(std::int32_t operation, double now);
  void put_ready(std::int32_t operation);
  void ended(std::int32_t operation, double now);
  void freed(std::int32_t resource);
  void start_what_can(double now);
  void touch(std::int32_t queue);
  void find_ways();
  bool is_fed(std::int32_t operation) const;
  std::int32_t next_of(std::int32_t queue, double now) const;
  void discard_taken(Ready& ready) const;

  const CyclicGraph& graph_;
  std::vector<double> urgency_;
  std::vector<Ready> ready_;                        // by queue
  std::vector<double> free_;                        // by resource: from when on
  std::vector<double> ends_, previous_ends_;        // by operation
  std::vector<std::int32_t> waits_;                 // by operation: those it waits for within the iteration
  std::vector<std::int32_t> missing_;               // by operation: of these
  std::vector<std::vector<std::int32_t>> waiting_;  // by resource: queues that wait for it to be free
  std::vector<std::int32_t> touched_;               // queues where something changed
  std::vector<char> is_touched_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::int32_t> started_;
  Feeding feeding_;
  Ready nearest_;            // what is ready for compute, again
  std::vector<char> taken_;  // by operation: it has started, though a list may still hold it
};

}  // namespace weft
