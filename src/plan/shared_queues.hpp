// Finds which queues of different rank classes are one. The members of a transfer meet on a queue, and a queue starts
// its transfers in order; so whatever one class issues to a queue, every other member must issue to one queue of its
// own that carries nothing else of theirs. The verifier asks whether that holds, the runtime numbers queues by it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

class SharedQueues {
 public:
  // The plan's operations name queues that are there (Unfolded checks that).
  explicit SharedQueues(const Plan& plan);

  // One class issues these two transfers to different queues although other members have both on one.
  struct Conflict {
    OpId first, second;
  };
  const std::optional<Conflict>& conflict() const { return conflict_; }

  // Numbers are equal for queues of different classes that are one, and different for the queues of a class. They are
  // the least numbers for which that holds, so they stay few however many stages there are.
  std::int32_t number(ClassId rank_class, QueueId queue) const { return numbers_[rank_class][queue]; }

 private:
  std::optional<Conflict> conflict_;
  IdVector<ClassId, IdVector<QueueId, std::int32_t>> numbers_;
};

}  // namespace weft
