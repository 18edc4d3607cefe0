// Where Weft was built without NCCL.
#include "base/error.hpp"
#include "comm/nccl/nccl_collectives.hpp"

namespace weft {

std::unique_ptr<StreamCollectives> make_nccl_collectives(const NcclOptions& options, Exchange exchange) {
  return collectives_over(options, std::move(exchange), []() -> std::unique_ptr<NcclLinks> {
    fail(
        "this Weft was built without NCCL; where CUDA and NCCL are installed (nccl.h and libnccl.so, also those of "
        "PyTorch's Python package), configure it with -DWEFT_CUDA=ON");
  });
}

}  // namespace weft
