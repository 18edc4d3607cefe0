#include "exec/plan_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "exec/forward_part.hpp"

namespace weft {

PlanRun::PlanRun(const RankView& view) : view_(view), instances_(view.unfolded().instances_of(view.rank_class())) {
  for (const ClassId c : view.plan().classes.ids()) {
    most_instances_ = std::max(most_instances_, view.unfolded().instances_of(c).size());
  }
  // Of a rank's two queues of computations one operation runs at a time.
  std::vector<std::int32_t> computes, transfers;
  for (const QueueKind kind : {QueueKind::compute, QueueKind::extra}) {
    for (std::size_t i = 0; i < instances(); ++i) {
      if (queue_kind(instance(i)) == kind) computes.push_back(static_cast<std::int32_t>(i));
    }
  }
  for (std::size_t i = 0; i < instances(); ++i) {
    if (queue_kind(instance(i)) == QueueKind::communication) transfers.push_back(static_cast<std::int32_t>(i));
  }
  glancer_.emplace(std::move(computes), std::move(transfers));
}

QueueKind PlanRun::queue_kind(const Instance& instance) const {
  return view_.plan().classes[view_.rank_class()].queues[instance.queue].kind;
}

std::vector<PlanRun::Dependency> PlanRun::waits_of(std::size_t index) const {
  std::vector<Dependency> waits;
  for (const Edge& edge : view_.unfolded().waits_for(instances_[index])) {
    if (edge.kind == EdgeKind::queue) continue;  // queues keep their order by themselves
    waits.push_back({instances_.position_of(edge.from), edge.distance, edge.kind == EdgeKind::blocking});
  }
  return waits;
}

void PlanRun::run(std::int64_t first, std::int64_t end, const OnStep& on_step) {
  if (now_.steps >= longest_.steps) longest_ = std::move(now_);
  const std::int64_t steps = end - first;
  now_ = {first, steps, SpanRing(SpanRing::steps_kept(steps, most_instances_), instances())};
  run_stretch(on_step);
}

void PlanRun::prepare_validation() {
  if (std::exchange(prepared_validation_, true)) return;
  const ForwardPart part = forward_part(view_.whole());
  for (std::size_t i = 0; i < instances(); ++i) {
    std::vector<Dependency> waits;
    for (const Edge& edge : part.waits[instances_[i]]) {
      waits.push_back({instances_.position_of(edge.from), edge.distance, false});
    }
    set_forward_part(i, part.needed[instances_[i]], std::move(waits));
  }
}

void PlanRun::validate(std::int64_t batches) {
  prepare_validation();
  Stretch trained = std::exchange(now_, {0, batches, {}});
  now_.spans = SpanRing(SpanRing::steps_kept(batches, most_instances_), instances());
  validating_ = true;
  run_stretch({});
  validating_ = false;
  now_ = std::move(trained);
}

void PlanRun::rehearse(bool validates) {
  constexpr std::int64_t kStep = 1;  // whoever keeps the gradients of step 0 shall not be given these
  if (!needs_rehearsal()) return;
  now_ = {kStep, 1, {}};
  rehearse_stretch();
  if (validates) {
    prepare_validation();
    now_ = {0, 1, {}};
    validating_ = true;
    rehearse_stretch();
    validating_ = false;
  }
  now_ = {};
}

StepGlance PlanRun::glance(std::int64_t step) {
  step -= now_.first;
  const std::span<const RankSpan> own = now_.spans.of_step(step);
  if (step + 1 < now_.steps) {
    const std::span<const RankSpan> next = now_.spans.of_step(step + 1);
    return glancer_->look(own, next, glancer_->begin_of(next));
  }
  std::int64_t end = 0;
  for (const RankSpan& span : own) end = std::max(end, span.end);
  return glancer_->look(own, {}, end);
}

std::string PlanRun::step_in_words(std::int64_t step) const {
  return fmt::format("{} {}", validating_ ? "validation batch" : "step", now_.first + step + 1);
}

}  // namespace weft
