// What one rank of a run computes with, made for it: kernels of this machine's processors, a GPU and NCCL, or a
// partition of a GPU and paced copies.
#pragma once

#include <memory>
#include <optional>

#include "comm/paced_device/paced_device_world.hpp"
#include "exec/train_rank.hpp"
#include "study/run/run_options.hpp"

namespace weft {

class RankProcessor {
 public:
  // All ranks make theirs at the same time; ranks of one process share the world. `collectives`: those of a rank's last
  // processor, with which this one goes on. Throws Error where this machine cannot do what the options ask for.
  RankProcessor(const RunOptions& options, Communicator& communicator, PacedDeviceWorld& world,
                std::shared_ptr<StreamCollectives> collectives = nullptr);

  Processor get() const;
  const std::shared_ptr<StreamCollectives>& collectives() const { return collectives_; }

 private:
  std::unique_ptr<const Cluster> cluster_;  // to whose links copies are paced
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Accelerator> accelerator_;
  std::shared_ptr<StreamCollectives> collectives_;
};

}  // namespace weft
