// Where Weft was built without CUDA.
#include "base/error.hpp"
#include "comm/paced_device/paced_device_collectives.hpp"

namespace weft {

std::unique_ptr<StreamCollectives> make_paced_device_collectives(const PacedDeviceOptions& options, Exchange exchange) {
  return paced_collectives_over(options, std::move(exchange), []() -> std::unique_ptr<PacedDevice> {
    fail("this Weft was built without CUDA: configure it with -DWEFT_CUDA=ON (preset cuda), where nvcc is installed");
  });
}

}  // namespace weft
