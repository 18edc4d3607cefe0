#include "study/run/rank_processor.hpp"

#include "comm/paced_device/paced_device_collectives.hpp"
#include "exec/rank_exchange.hpp"

namespace weft {

RankProcessor::RankProcessor(const RunOptions& options, Communicator& communicator, PacedDeviceWorld& world,
                             std::shared_ptr<StreamCollectives> collectives)
    : collectives_(std::move(collectives)) {
  const Execution& execution = options.inputs.cluster.execution;
  if (execution.runtime != Runtime::cuda) {
    kernels_ = make_kernels({.threads = options.threads});
    return;
  }
  const std::int64_t rank = communicator.rank(), ranks = communicator.size();
  const Exchange exchange = [&communicator](const std::string& own) { return texts_of_all(communicator, own); };
  if (execution == kPacedGpuRanks) {
    const SmShare share{static_cast<int>(rank), static_cast<int>(ranks)};
    accelerator_ = make_cuda_accelerator({.number = options.gpu, .share = share});
    cluster_ = std::make_unique<const Cluster>(options.inputs.cluster);
    if (ranks == 1) return;
    collectives_ = make_paced_device_collectives(
        {.rank = rank, .ranks = ranks, .cluster = cluster_.get(), .world = &world}, exchange);
    return;
  }
  accelerator_ = make_cuda_accelerator({.number = options.gpu});
  if (ranks == 1 || collectives_) return;
  collectives_ = make_nccl_collectives({.rank = rank, .ranks = ranks, .device = options.gpu}, exchange);
}

Processor RankProcessor::get() const {
  return accelerator_ ? Processor(*accelerator_, collectives_.get()) : Processor(*kernels_);
}

}  // namespace weft
