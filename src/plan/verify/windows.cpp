#include "plan/verify/windows.hpp"

#include <fmt/format.h>

#include <map>

#include "plan/happens_before.hpp"
#include "plan/late.hpp"
#include "plan/task_windows.hpp"

namespace weft {
namespace {

class WindowProof {
 public:
  WindowProof(const WholePlan& whole, const HappensBefore& before)
      : plan_(whole.plan()), unfolded_(whole.unfolded()), before_(before) {}

  std::optional<Violation> check(const TaskWindow& window) const {
    if (window.release.valid()) {
      if (auto found = check_release(window)) return found;
    }
    return window.deadline.valid() ? check_deadline(window) : std::nullopt;
  }

 private:
  std::optional<Violation> check_release(const TaskWindow& window) const {
    return for_pairs(window.operation, window.release, [&](InstanceId task, InstanceId release) {
      const bool holds = before_.ended_before(release, 0, task, 0) && before_.ended_before(release, 1, task, 1);
      return holds ? std::nullopt
                   : violation(
                         fmt::format("[{}] may start before its release [{}] has ended", name(task), name(release)));
    });
  }

  std::optional<Violation> check_deadline(const TaskWindow& window) const {
    return for_pairs(window.operation, window.deadline, [&](InstanceId task, InstanceId deadline) {
      const bool holds = window.steps == 1
                             ? before_.ended_before(task, 0, deadline, 1)
                             : before_.ended_before(task, 0, deadline, 0) && before_.ended_before(task, 1, deadline, 1);
      return holds ? std::nullopt
                   : violation(fmt::format("[{}] may still run when its deadline [{}]{} starts", name(task),
                                           name(deadline), window.steps == 1 ? " of the next step" : ""));
    });
  }

  // Pairs that a window speaks of: of the same micro-batch where both repeat, else every one of either.
  template <class Check>
  std::optional<Violation> for_pairs(OpId task, OpId other, Check check) const {
    const bool task_repeats = plan_.graph.op(task).per_micro_batch,
               other_repeats = plan_.graph.op(other).per_micro_batch;
    const auto repeats = static_cast<std::int32_t>(task_repeats || other_repeats ? plan_.graph.micro_batches : 1);
    for (std::int32_t mb = 0; mb < repeats; ++mb) {
      if (auto found =
              check(unfolded_.instance_of(task, MicroBatch{mb}), unfolded_.instance_of(other, MicroBatch{mb}))) {
        return found;
      }
    }
    return std::nullopt;
  }

  static std::optional<Violation> violation(const std::string& text) {
    return Violation{Rule::window, "window: " + text};
  }
  std::string name(InstanceId instance) const { return describe(plan_, unfolded_.instances()[instance]); }

  const Plan& plan_;
  const Unfolded& unfolded_;
  const HappensBefore& before_;
};

// Late operations count in passes, and windows in steps: no plan has both.
std::optional<Violation> check_window(const Plan& plan, const TaskWindow& window) {
  const auto fault = [&](std::string text) {
    return Violation{Rule::window, fmt::format("window: '{}': {}", describe(plan.graph.op(window.operation)), text)};
  };
  if (has_late(plan)) return fault("has a window, and the plan has late operations");
  for (const OpId other : {window.release, window.deadline}) {
    if (!other.valid()) continue;
    if (other == window.operation) return fault("is its own release or deadline");
    if (plan.graph.op(other).rank_class != plan.graph.op(window.operation).rank_class) {
      return fault(fmt::format("'{}' is of another rank class", describe(plan.graph.op(other))));
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Violation> check_windows(const WholePlan& whole, const std::vector<InstanceId>& order) {
  const Plan& plan = whole.plan();
  std::vector<TaskWindow> windows = windows_of_tasks(plan, whole.original());
  windows.insert(windows.end(), plan.windows.begin(), plan.windows.end());
  if (windows.empty()) return std::nullopt;
  std::map<ClassId, std::vector<TaskWindow>> of_class;
  for (const TaskWindow& window : windows) {
    if (auto found = check_window(plan, window)) return found;
    of_class[plan.graph.op(window.operation).rank_class].push_back(window);
  }
  const Landmarks landmarks(whole.unfolded(), order);
  for (const auto& [rank_class, own] : of_class) {
    const HappensBefore before(plan, whole.unfolded(), landmarks, rank_class);
    const WindowProof proof(whole, before);
    for (const TaskWindow& window : own) {
      if (auto found = proof.check(window)) return found;
    }
  }
  return std::nullopt;
}

}  // namespace weft
