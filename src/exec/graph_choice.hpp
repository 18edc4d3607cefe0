// Decides, by measurement, whether a host starts recorded steps (CUDA graphs) or enqueues them call by call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.hpp"

namespace weft {

enum class GraphWish : std::uint8_t { automatic, always, never };

// What one step costs the host of a rank.
struct HostCost {
  Nanos host;                  // to enqueue the step, and to read what it left
  Nanos step;                  // from the end of the step before to its own
  bool device_waited = false;  // when all was enqueued, the device had done nearly all of it

  friend bool operator==(const HostCost&, const HostCost&) = default;
};

// A host enqueues one step while the device works on another, so it is the limit where it needs as long as a step.
// Calls are not spread evenly over a step, though: where many short kernels follow each other (updates, say) the device
// waits before that. This share is a choice, not a measurement.
inline constexpr double kHostBoundShare = 0.8;
// The first steps load kernels and choose algorithms.
inline constexpr std::int64_t kStepsBeforeGraphs = 2;
inline constexpr std::int64_t kStepsToCompare = 3;

// Costs of steps one after the other, of which the median counts. It keeps the first few dozen.
class HostCosts {
 public:
  void add(const HostCost& cost);
  std::int64_t count() const { return static_cast<std::int64_t>(costs_.size()); }
  HostCost median() const;  // zeros of none

 private:
  std::vector<HostCost> costs_;
};

// By rank. Ranks wait for each other, so the slowest host holds up all of them. A host that fills a stream's queue
// waits inside its calls for the device and looks slow: such a device does not wait for it.
bool is_host_bound(std::span<const HostCost> ranks);
// Whether the steps of all ranks together got shorter.
bool has_shorter_steps(std::span<const HostCost> ranks, std::span<const HostCost> than);

// For the report of a run.
struct HostReport {
  HostCost by_calls, by_graphs;        // of the rank whose host takes longest; zeros where there were no such steps
  std::int64_t first_graph_step = -1;  // counted from 0; -1: none
  bool ends_with_graphs = false;
  std::string why;  // "the host is the limit", "--graphs off"
};

}  // namespace weft
