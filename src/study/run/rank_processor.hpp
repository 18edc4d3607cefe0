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
  // All ranks make theirs at the same time; ranks of one process share the world. Throws Error where this machine
  // cannot do what the options ask for.
  RankProcessor(const RunOptions& options, Communicator& communicator, PacedDeviceWorld& world);

  Processor get() const;

 private:
  std::optional<Cluster> cluster_;  // to whose links copies are paced
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Accelerator> accelerator_;
  std::unique_ptr<StreamCollectives> collectives_;
};

}  // namespace weft
