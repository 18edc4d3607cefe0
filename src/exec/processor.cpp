#include "exec/processor.hpp"

#include "exec/rank_run.hpp"

namespace weft {

std::unique_ptr<PlanRun> make_plan_run(const RankView& view, Communicator& communicator, const Processor& processor,
                                       const ComputeBinder& compute, const TransferBinder& transfers,
                                       StreamRunOptions options) {
  if (processor.device == nullptr) {
    return std::make_unique<RankRun>(view, communicator, processor.kernels, compute, transfers);
  }
  return std::make_unique<StreamRun>(view, communicator, *processor.device, processor.collectives, compute, transfers,
                                     std::move(options));
}

}  // namespace weft
