// A plan written out: every operation of every micro-batch of one iteration, and all that orders them. Verifier,
// simulator and runtime read plans through this and nothing else.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

enum class EdgeKind : std::uint8_t { data, queue, blocking, reuse, wait };

// An instance waits for `from` of the same pass over the order (distance 0) or of the previous one (distance 1). A pass
// is an iteration, but for late operations (plan/late.hpp).
struct Edge {
  InstanceId from;
  std::int8_t distance = 0;
  EdgeKind kind = EdgeKind::data;
};

struct Instance {
  OpId operation;
  MicroBatch micro_batch = kOncePerStep;
  ClassId rank_class;
  QueueId queue;  // of its class
  std::int32_t queue_position = 0;
  // Position among the operations of the compute queue and blocking transfers, which run one after the other; -1: it
  // runs beside them.
  std::int32_t chain_position = -1;
  JointId joint;  // instances of one transfer with members in several classes share it
};

using Instances = IdVector<InstanceId, Instance>;

class Unfolded {
 public:
  // Throws Error where the order names an operation twice, leaves one out, or does not fit the graph.
  explicit Unfolded(const Plan& plan);

  const Instances& instances() const { return instances_; }  // class after class, in issue order
  IdRange<InstanceId> instances_of(ClassId rank_class) const {
    return {first_of_class_[rank_class.index()], first_of_class_[rank_class.index() + 1]};
  }
  std::span<const Edge> waits_for(InstanceId instance) const;
  std::size_t joints() const { return joint_begin_.size() - 1; }
  std::span<const InstanceId> members(JointId joint) const;
  // Returns the instance of an operation at a micro-batch, which is ignored for one that runs once a step.
  InstanceId instance_of(OpId operation, MicroBatch micro_batch) const;
  std::int32_t queue_length(ClassId rank_class, QueueId queue) const { return queue_length_[rank_class][queue]; }
  std::int32_t chain_length(ClassId rank_class) const { return chain_length_[rank_class]; }

 private:
  void lay_out(const Plan& plan);
  void join(const Plan& plan);
  void connect(const Plan& plan);
  class DataSources;
  void reserve_edges(const Plan& plan, const DataSources& sources);
  void wait_for_memory(const Plan& plan, const Instance& writer, const IdVector<ValueId, std::vector<OpId>>& readers);

  Instances instances_;
  std::vector<InstanceId> first_of_class_;      // and the end of the last
  IdVector<OpId, std::size_t> first_position_;  // of micro-batch 0, in found_
  std::vector<InstanceId> found_;               // operation after operation, by micro-batch
  std::vector<Edge> edges_;
  std::vector<std::size_t> edge_begin_;
  std::vector<InstanceId> joint_members_;
  std::vector<std::size_t> joint_begin_;
  IdVector<ClassId, IdVector<QueueId, std::int32_t>> queue_length_;
  IdVector<ClassId, std::int32_t> chain_length_;
  IdVector<OpId, bool> per_micro_batch_;
};

// Returns words such as "stage 1: layer 3 qkv forward, micro-batch 2".
std::string describe(const Plan& plan, const Instance& instance);

}  // namespace weft
