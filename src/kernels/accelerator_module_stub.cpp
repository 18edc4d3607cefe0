// Where Weft was built without CUDA.
#include "kernels/accelerator.hpp"

namespace weft {

std::unique_ptr<Accelerator> make_cuda_accelerator(const AcceleratorOptions& /*options*/) {
  fail("this Weft was built without CUDA: configure it with -DWEFT_CUDA=ON (preset cuda), where nvcc is installed");
}

}  // namespace weft
