// When users' tasks (graph/extra_task.hpp) run in a predicted step, between which moments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "study/plan/plan_study.hpp"

namespace weft {

// One execution of a task. Times are seconds since the beginning of its step, and may reach into the next one.
struct TaskTime {
  std::string name;
  std::string rank_class;  // "stage 0"
  MicroBatch micro_batch = kOncePerStep;
  bool in_bubbles = false;  // on the queue `extra`; else in line
  double start_s = 0, end_s = 0;
  std::optional<double> released_s = {};  // when the last of its releases has ended
  std::optional<double> due_s = {};       // when the first of its deadlines starts
};

// In the order of the layout's tasks, then of rank classes and micro-batches; empty where there are no tasks.
std::vector<TaskTime> task_times(const PolicyStudy& study);

}  // namespace weft
