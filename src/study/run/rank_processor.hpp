// What one rank of a run computes with, made for it: kernels of this machine's processors, or a GPU and NCCL.
#pragma once

#include <memory>

#include "exec/train_rank.hpp"
#include "study/run/run_options.hpp"

namespace weft {

class RankProcessor {
 public:
  // All ranks make theirs at the same time. Throws Error where this machine cannot do what the options ask for.
  RankProcessor(const RunOptions& options, Communicator& communicator);

  Processor get() const;

 private:
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Accelerator> accelerator_;
  std::unique_ptr<StreamCollectives> collectives_;
};

}  // namespace weft
