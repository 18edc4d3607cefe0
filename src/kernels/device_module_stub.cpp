// Where Weft was built without CUDA.
#include "kernels/device.hpp"

namespace weft {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/) {
  fail("this Weft was built without CUDA: configure it with -DWEFT_CUDA=ON (preset cuda), where nvcc is installed");
}

}  // namespace weft
