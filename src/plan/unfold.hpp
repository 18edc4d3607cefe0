// A plan written out: every operation of every micro-batch of one iteration, and all that orders them. Verifier,
// simulator and runtime read plans through this and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

enum class EdgeKind : std::uint8_t { data, queue, blocking, reuse, wait };

// What an instance waits for: `from` of the same iteration (distance 0) or of the previous one (distance 1).
struct Edge {
  std::int32_t from = 0;
  std::int8_t distance = 0;
  EdgeKind kind = EdgeKind::data;
};

struct Instance {
  OpId operation;
  std::int32_t micro_batch = -1;
  std::int32_t rank_class = 0;
  std::int32_t queue = 0;  // of its class
  std::int32_t queue_position = 0;
  // Position among the operations of the compute queue and blocking transfers, which run one after the other; -1: it
  // runs beside them.
  std::int32_t chain_position = -1;
  std::int32_t joint = -1;  // instances of one transfer with members in several classes share it
};

class Unfolded {
 public:
  // Throws Error where the order names an operation twice, leaves one out, or does not fit the graph.
  explicit Unfolded(const Plan& plan);

  const std::vector<Instance>& instances() const { return instances_; }  // by class, in issue order
  std::span<const Edge> waits_for(std::size_t instance) const;
  std::size_t joints() const { return joint_begin_.size() - 1; }
  std::span<const std::int32_t> members(std::size_t joint) const;
  // The instance of an operation at a micro-batch (ignored for one that runs once a step).
  std::int32_t instance_of(OpId operation, std::int32_t micro_batch) const;
  std::int32_t queue_length(std::size_t rank_class, std::size_t queue) const;
  std::int32_t chain_length(std::size_t rank_class) const { return chain_length_[rank_class]; }

 private:
  void lay_out(const Plan& plan);
  void join(const Plan& plan);
  void connect(const Plan& plan);
  class DataSources;
  void reserve_edges(const Plan& plan, const DataSources& sources);
  void wait_for_memory(const Plan& plan, const Instance& writer, const std::vector<std::vector<OpId>>& readers);

  std::vector<Instance> instances_;
  std::vector<std::int32_t> first_instance_;  // by operation: micro-batch 0
  std::vector<std::int32_t> position_;        // [first_instance_ + micro_batch] -> index into instances_
  std::vector<Edge> edges_;
  std::vector<std::int64_t> edge_begin_;
  std::vector<std::int32_t> joint_members_;
  std::vector<std::int32_t> joint_begin_;
  std::vector<std::vector<std::int32_t>> queue_length_;  // [class][queue]
  std::vector<std::int32_t> chain_length_;               // [class]
  std::vector<bool> per_micro_batch_;
};

// "stage 1: layer 3 qkv forward, micro-batch 2".
std::string describe(const Plan& plan, const Instance& instance);

}  // namespace weft
