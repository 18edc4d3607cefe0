#include "planner/schedule/user_tasks.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "plan/task_windows.hpp"

namespace weft {
namespace {

struct Spot {
  BlockId block;
  std::int32_t position = -1;
};

Spot find_spot(const ClassPlan& plan, OpId id) {
  for (const BlockId b : plan.blocks.ids()) {
    const std::vector<OpId>& operations = plan.blocks[b].operations;
    const auto found = std::ranges::find(operations, id);
    if (found != operations.end()) return {b, static_cast<std::int32_t>(found - operations.begin())};
  }
  WEFT_CHECK(false);
  return {};
}

bool covers(const ClassPlan& plan, const IssueSlot& slot, const Spot& spot) {
  const auto length = static_cast<std::int32_t>(plan.blocks[slot.block].operations.size());
  return slot.block == spot.block && slot.begin <= spot.position &&
         spot.position < (slot.end == -1 ? length : slot.end);
}

void erase_from_block(ClassPlan& plan, const Spot& spot) {
  std::vector<OpId>& operations = plan.blocks[spot.block].operations;
  operations.erase(operations.begin() + spot.position);
  for (IssueSlot& slot : plan.order) {
    if (slot.block != spot.block) continue;
    if (slot.begin > spot.position) --slot.begin;
    if (slot.end > spot.position) --slot.end;
  }
}

// The section that ends where it is inserted takes it.
void insert_into_block(ClassPlan& plan, const Spot& spot, OpId id) {
  std::vector<OpId>& operations = plan.blocks[spot.block].operations;
  operations.insert(operations.begin() + spot.position, id);
  for (IssueSlot& slot : plan.order) {
    if (slot.block != spot.block) continue;
    if (slot.begin > 0 && slot.begin >= spot.position) ++slot.begin;
    if (slot.end >= spot.position) ++slot.end;
  }
}

class TaskPlacer {
 public:
  TaskPlacer(Plan& plan, OpId task) : plan_(plan), task_(task), class_(plan.classes[op(task).rank_class]) {
    for (const TaskWindow& window : plan.windows) {
      if (window.operation != task) continue;
      if (window.release.valid()) releases_.push_back(window.release);
      if (window.deadline.valid() && window.steps == 0) deadlines_.push_back(window.deadline);
    }
  }

  void place() {
    erase_from_block(class_, find_spot(class_, task_));
    if (op(task_).per_micro_batch) {
      place_in_block();
    } else {
      place_in_order();
    }
  }

 private:
  const Operation& op(OpId id) const { return plan_.graph.op(id); }

  void place_in_block() {
    std::optional<Spot> spot;
    for (const OpId release : releases_) {
      const Spot found = find_spot(class_, release);
      if (!spot || (found.block == spot->block && found.position >= spot->position))
        spot = Spot{found.block, found.position + 1};
    }
    for (const OpId deadline : deadlines_) {
      if (!op(deadline).per_micro_batch) continue;
      const Spot found = find_spot(class_, deadline);
      if (releases_.empty() && (!spot || found.position < spot->position)) spot = found;
      if (found.block == spot->block && found.position < spot->position) refuse(deadline);
    }
    insert_into_block(class_, *spot, task_);
  }

  // Behind the slot that has the release's last micro-batch. Where that slot has the deadline too, it is cut in two.
  void place_in_order() {
    std::size_t at = 0;
    std::int32_t position = -1;  // of the release in the slot before `at`
    for (const OpId release : releases_) {
      const Spot spot = find_spot(class_, release);
      std::size_t end = class_.order.size();
      while (end > 0 && !covers(class_, class_.order[end - 1], spot)) --end;
      if (end >= at) position = end == at ? std::max(position, spot.position) : spot.position;
      at = std::max(at, end);
    }
    bool cuts = false;
    for (const OpId deadline : deadlines_) {
      const Spot spot = find_spot(class_, deadline);
      for (std::size_t s = 0; s < at; ++s) {
        if (!covers(class_, class_.order[s], spot)) continue;
        if (s + 1 < at || spot.position <= position) refuse(deadline);
        cuts = true;
      }
    }
    if (cuts) {
      IssueSlot& first = class_.order[at - 1];
      IssueSlot rest = first;
      first.end = rest.begin = position + 1;
      class_.order.insert(class_.order.begin() + static_cast<std::ptrdiff_t>(at), rest);
    }
    class_.blocks.push_back({.operations = {task_}});
    class_.order.insert(class_.order.begin() + static_cast<std::ptrdiff_t>(at),
                        {class_.blocks.last_id(), kOncePerStep});
  }

  [[noreturn]] void refuse(OpId deadline) const {
    fail(
        "--extra: task '{}': its deadline '{}' comes before its release '{}'{} has ended in the order of this schedule",
        op(task_).task_name, describe(op(deadline)), releases_.empty() ? "" : describe(op(releases_.front())),
        plan_.graph.micro_batches > 1 && !op(task_).per_micro_batch ? " of the last micro-batch" : "");
  }

  Plan& plan_;
  const OpId task_;
  ClassPlan& class_;
  std::vector<OpId> releases_, deadlines_;  // of the same step
};

}  // namespace

void place_tasks(Plan& plan, const StepGraph& model) {
  plan.windows = windows_of_tasks(plan, model);
  for (const OpId id : plan.graph.operations.ids()) {
    if (plan.graph.op(id).role == Role::task) TaskPlacer(plan, id).place();
  }
  for (const TaskWindow& window : plan.windows) {
    if (window.release.valid()) plan.waits.push_back({window.operation, window.release, 0});
    if (window.deadline.valid()) plan.waits.push_back({window.deadline, window.operation, window.steps});
  }
}

}  // namespace weft
