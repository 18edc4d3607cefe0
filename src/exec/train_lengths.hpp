// Training on batches of several sequence lengths: one plan for each length, and the batch of a step says which of them
// runs. All that a step leaves for the next one goes from plan to plan: weights, moments, factors of curvature, errors
// of compression. Everything else is each plan's own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "exec/data/batches.hpp"
#include "exec/processor.hpp"
#include "exec/train_settings.hpp"
#include "plan/whole_plan.hpp"

namespace weft {

struct LengthsJob {
  // Plans of one model, cluster and layout that differ in `seq`, which says what batches a plan is for.
  std::vector<const WholePlan*> plans;
  TrainSettings settings;
  std::shared_ptr<const Corpus> corpus;
};

// Which of `lengths` the batch of a step has. Of as many steps in a row, counted from 0, each length has one; their
// order is drawn anew every time.
std::size_t length_of_step(std::uint64_t seed, std::int64_t step, std::size_t lengths);

struct LengthsResult {
  std::vector<double> losses;       // by step: the mean over the tokens of its batch
  std::vector<std::size_t> chosen;  // by step: index into LengthsJob::plans
  std::vector<double> seconds;      // by step, on this rank
};

// All ranks call it. `on_step`: on this rank's worker, when a step has ended.
using OnLengthStep = std::function<void(std::int64_t step, std::size_t chosen, double loss)>;
LengthsResult train_lengths(const LengthsJob& job, Communicator& communicator, const Processor& processor,
                            const OnLengthStep& on_step = {});

}  // namespace weft
