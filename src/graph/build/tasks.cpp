// Tasks that a user adds to the step (graph/extra_task.hpp): operations of their stage that read nothing of the model
// but, where they compute a norm, weights. What orders them is their release and their deadline, which plans hold as
// windows.
#include <fmt/format.h>

#include "base/error.hpp"
#include "graph/build/class_builder.hpp"
#include "graph/task_moments.hpp"

namespace weft {

void ClassBuilder::add_tasks() {
  const AsTurn all(turn_, kAllTurns);
  for (std::size_t i = 0; i < layout_.tasks.size(); ++i) {
    const ExtraTask& task = layout_.tasks[i];
    if (task.stage != rank_class().stage) continue;
    layer_ = -1;
    chunk_ = 0;
    OpKey key;
    key.kind = OpKind::task;
    key.dtype = ElementType::fp32;
    key.dims[0] = task.duration.value;
    std::vector<Read> reads;
    std::vector<Write> writes;
    if (!task.norm_of.empty()) {
      const Parameter& p = parameter_named(task);
      key.kind = OpKind::square_sum;
      key.dtype = layout_.precision;
      key.dims[0] = graph_.value(p.weight).elements();
      reads.push_back({Operand::weight, p.weight, 1});
      writes.push_back(
          {Operand::square_sum,
           once({.name = task.name + ".norm", .shape = {1}, .kind = ValueKind::scalar, .dtype = ElementType::fp32})});
    }
    Operation& op = add(Role::task, Phase::optimizer, key, std::move(reads), std::move(writes));
    op.part = static_cast<std::int32_t>(i);
    op.task_name = task.name;
    op.per_micro_batch = task.per_micro_batch;
    const TaskMoments moments = find_moments(graph_, task, op);
    if (!task.per_micro_batch) continue;
    const Operation& beside = graph_.op((moments.release.empty() ? moments.deadline : moments.release).front());
    op.chunk = beside.chunk;
    op.phase = beside.phase == Phase::forward ? Phase::forward : Phase::input_grad;
    op.key.phase = op.phase;
  }
}

const Parameter& ClassBuilder::parameter_named(const ExtraTask& task) const {
  std::string example;
  for (const Parameter& p : parameters_) {
    const std::string name =
        p.layer < 0 ? std::string(name_of(p.role)) : fmt::format("layer {} {}", p.layer, name_of(p.role));
    if (name == task.norm_of) return p;
    if (example.empty()) example = name;
  }
  fail("--extra: task '{}': key 'norm_of': {} has no weights '{}'; some that it has are '{}'", task.name,
       rank_class().name, task.norm_of, example);
}

}  // namespace weft
