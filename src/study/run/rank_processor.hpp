// What one rank of a run computes with, made for it: kernels of this machine's processors, or a GPU and NCCL.
#pragma once

#include <memory>

#include "exec/train_rank.hpp"
#include "study/run/run_options.hpp"

namespace weft {

class RankProcessor {
 public:
  // All ranks make theirs at the same time. `collectives`: those of a rank's last one, which it goes on with. Throws
  // Error where this machine cannot do what the options ask for.
  RankProcessor(const RunOptions& options, Communicator& communicator,
                std::shared_ptr<StreamCollectives> collectives = nullptr);

  Processor get() const;
  const std::shared_ptr<StreamCollectives>& collectives() const { return collectives_; }

 private:
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Accelerator> accelerator_;
  std::shared_ptr<StreamCollectives> collectives_;
};

}  // namespace weft
