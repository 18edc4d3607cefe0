// Training on batches of several sequence lengths: of each length the plan with the shortest prediction, and the batch
// of a step says which plan runs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/train_lengths.hpp"
#include "study/run/run_session.hpp"

namespace weft {

// What was predicted and measured of the steps of one length.
struct LengthStudy {
  std::int64_t length = 0;
  std::string policy;
  double predicted_s = 0, bound_s = 0, tokens = 0;
  std::vector<double> measured_s;

  double median_s() const;  // 0 where no step of it was measured
};

// Rank 0 calls it after every step with the number of steps trained, the length of the last one and its loss.
using OnLengthLoss = std::function<void(std::int64_t steps, std::int64_t length, double loss)>;

class LengthsRun {
 public:
  LengthsRun(const std::vector<std::int64_t>& lengths, const RunOptions& options, RanksAs ranks_as,
             OnLengthLoss on_loss);

  // One rank's part: plans for every length, then training with all of them. All ranks of the run must take part.
  void run_rank(Communicator& communicator);
  // As RunSession has it: then nothing runs.
  const PolicyStudy* too_large() const;
  // On the process of rank 0, when all have ended.
  std::vector<LengthStudy> studies() const;
  const std::vector<double>& losses() const { return result_.losses; }

 private:
  RunOptions options_;
  OnLengthLoss on_loss_;
  RunListener silent_;
  std::vector<std::unique_ptr<RunSession>> sessions_;  // by length
  LengthsResult result_;
};

}  // namespace weft
