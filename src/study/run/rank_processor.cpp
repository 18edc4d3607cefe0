#include "study/run/rank_processor.hpp"

#include "exec/rank_exchange.hpp"

namespace weft {

RankProcessor::RankProcessor(const RunOptions& options, Communicator& communicator,
                             std::shared_ptr<StreamCollectives> collectives)
    : collectives_(std::move(collectives)) {
  if (options.inputs.cluster.execution.runtime != Runtime::cuda) {
    kernels_ = make_kernels({.threads = options.threads});
    return;
  }
  accelerator_ = make_cuda_accelerator({.number = options.gpu});
  if (communicator.size() == 1 || collectives_) return;
  const NcclOptions nccl{.rank = communicator.rank(), .ranks = communicator.size(), .device = options.gpu};
  collectives_ = make_nccl_collectives(
      nccl, [&communicator](const std::string& own) { return texts_of_all(communicator, own); });
}

Processor RankProcessor::get() const {
  return accelerator_ ? Processor(*accelerator_, collectives_.get()) : Processor(*kernels_);
}

}  // namespace weft
