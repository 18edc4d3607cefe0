// Binds a transfer of the plan to a prepared collective on a rank's memory.
#pragma once

#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "exec/parameter_state.hpp"
#include "plan/shared_queues.hpp"

namespace weft {

// One execution of a transfer has its own places: the same collective may serve many executions.
struct BoundTransfer {
  std::vector<Segment> input, output;  // in place: output alone
  bool accumulate = false;             // the result is added to what is there
  std::vector<Segment> clear;          // before it starts: parts of the output where nothing is there yet
};

// Says what a transfer is, whatever micro-batch it serves.
struct TransferCall {
  PreparedCall call;  // without on_done
  bool in_place = false;
};

class TransferBinder {
 public:
  TransferBinder(const RankView& view, const ParameterStates& parameters);
  // Throws Error where `weft run` cannot carry it out yet.
  TransferCall call(OpId operation) const;
  BoundTransfer bind(OpId operation, MicroBatch micro_batch) const;

 private:
  struct Ends {
    std::vector<Segment> input, output;
    std::vector<std::int64_t> slices;  // elements by member, of divided collectives
    bool in_place = false;
    std::optional<UnevenBlocks> uneven = {};
  };
  Ends ends(const Operation& op, MicroBatch micro_batch) const;
  void add_whole_values(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_shards(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_encoded(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_node_shards(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_leg(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  // Legs of layer traffic (exec/bind_layer_leg.cpp).
  void add_layer_leg(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_leg_of_sum(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_leg_of_rows(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_leg_of_exchange(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_rows(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_exchange(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  void add_message(const Operation& op, MicroBatch micro_batch, Ends& ends) const;
  Vector gradient_in(const Operation& original, ValueId value) const;
  std::vector<std::vector<Segment>> shares_of(const Operation& original, const Origin& part, ValueId share,
                                              ValueId whole, MicroBatch micro_batch) const;
  std::vector<std::int64_t> members(const Communication& communication) const;
  std::int64_t queue(OpId operation) const;  // of the communicator: the same on all members

  const RankView& view_;
  const ParameterStates& parameters_;
  SharedQueues queues_;
  bool library_;  // all collectives are those of the library beneath, whatever algorithm the plan names, but for
                  // programs that it carries
};

}  // namespace weft
