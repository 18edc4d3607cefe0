// What a rank computes with: kernels of this processor, or a device with the collectives of its streams.
#pragma once

#include <memory>

#include "comm/stream_collectives.hpp"
#include "exec/bind_compute.hpp"
#include "exec/bind_transfer.hpp"
#include "exec/plan_run.hpp"
#include "exec/stream_run.hpp"
#include "kernels/accelerator.hpp"

namespace weft {

struct Processor {
  Processor(Kernels& of_this_machine) : kernels(of_this_machine) {}
  // `between`: null where the plan has no transfers.
  Processor(Accelerator& own, StreamCollectives* between)
      : kernels(own.kernels()), device(&own), collectives(between) {}

  Kernels& kernels;
  Accelerator* device = nullptr;
  StreamCollectives* collectives = nullptr;
};

// A rank's part of a plan on its processor. `options`: of a device.
std::unique_ptr<PlanRun> make_plan_run(const RankView& view, Communicator& communicator, const Processor& processor,
                                       const ComputeBinder& compute, const TransferBinder& transfers,
                                       StreamRunOptions options = {});

}  // namespace weft
