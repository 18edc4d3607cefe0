// What a run saved and what saving cost.
#pragma once

#include <string>
#include <vector>

#include "exec/train_rank.hpp"

namespace weft {

struct CheckpointStudy {
  std::string folder;
  std::int64_t resumed_from = 0;  // 0: from the start
  std::int64_t last_step = 0;     // of the run, counted from 1
  bool stopped = false;           // by a signal
  SaveSummary saves;
  // Means over steps that count; NaN where there are none.
  double step_beside_save_s = 0, step_without_save_s = 0;
};

// `step_times_s` holds the steps that count.
CheckpointStudy study_saves(const TrainResult& result, const std::vector<double>& step_times_s, std::string folder,
                            std::int64_t resumed_from);

}  // namespace weft
