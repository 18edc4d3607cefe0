// Knows which rows of the experts' slots are in use, where that is data: parts of a micro-batch's tokens, or experts
// whose exchange has the sizes that the gate found. There is a table for every way out, from tokens to experts: of each
// part of it, in forward, when forward is computed again, and in backward, which may all be cut differently.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

#include "base/element_range.hpp"
#include "exec/train_settings.hpp"
#include "kernels/matrix.hpp"
#include "plan/plan.hpp"

namespace weft {

// Ranges of rows within the capacity blocks of experts.
struct ExpertTable {
  Origin part;                         // of the way out
  std::vector<ElementRange> outgoing;  // of this rank's tokens, by expert
  std::vector<ElementRange> incoming;  // of what this rank's experts get, by source and expert
  // In levels, behind the first leg and the second of three: of what this rank passes on, by destination and its
  // expert, or on the way back by the source's.
  std::array<std::vector<ElementRange>, 2> passed_on;
};

class ExpertRowRanges {
 public:
  ExpertRowRanges(const Plan& plan, ClassId rank_class);

  // Slots of an expert for the tokens that a rank has of a micro-batch or, in an operation of a slice, of the slice.
  std::int64_t capacity(const Operation& op) const { return tokens_.capacity_of(op.turn); }
  // The choices that an expert takes of a micro-batch.
  std::int64_t capacity_of_micro_batch() const { return tokens_.routed.capacity; }
  std::int64_t experts() const { return tokens_.routed.experts; }  // of all ranks
  std::int64_t ranks() const { return ranks_; }                    // that share them

  // The tables in the direction of the operation's phase whose tokens begin in those of `part`. So tables are divided
  // among parts of whatever number, and each part waits for the exchanges that it needs. They stay where they are.
  std::vector<ExpertTable*> of(const Operation& op, MicroBatch micro_batch, const Origin& part);
  bool has_tables(const Operation& op, MicroBatch micro_batch) const;
  // Tells the tables that they concern that rows `rows` of the routing (kernels/experts.hpp) are there.
  void fill(const Operation& op, MicroBatch micro_batch, const Matrix& routing, ElementRange rows);

 private:
  enum class Pass : std::uint8_t { forward, again, back };
  using Key = std::tuple<std::int32_t, std::int32_t, MicroBatch, Pass>;  // the first are the layer and the turn
  static Key key_of(const Operation& op, MicroBatch micro_batch);
  void add_tables(const Operation& way_out, const Plan& plan);

  TokenRows tokens_;
  std::int64_t ranks_ = 1;
  std::map<Key, std::vector<ExpertTable>> tables_;
};

// Returns the smallest range that holds both.
ElementRange joined(ElementRange a, ElementRange b);

}  // namespace weft
