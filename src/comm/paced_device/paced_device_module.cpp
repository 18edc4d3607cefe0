// CUDA is linked to a module that is opened at the first use.
#include <dlfcn.h>

#include "base/error.hpp"
#include "base/module_file.hpp"
#include "comm/paced_device/paced_device_collectives.hpp"

namespace weft {
namespace {

std::unique_ptr<PacedDevice> open_device() {
  const OpenedModule opened =
      open_module("the paced collectives of GPUs", {WEFT_PACED_INSTALLED_AT, WEFT_PACED_BUILT_AT});
  if (opened.handle == nullptr) fail("{}", opened.problem);
  const auto make = reinterpret_cast<MakePacedDevice>(dlsym(opened.handle, kPacedDeviceSymbol));
  if (make == nullptr) fail("{}: not Weft's module for paced collectives", opened.path);
  return std::unique_ptr<PacedDevice>(make());
}

}  // namespace

std::unique_ptr<StreamCollectives> make_paced_device_collectives(const PacedDeviceOptions& options, Exchange exchange) {
  return paced_collectives_over(options, std::move(exchange), open_device);
}

}  // namespace weft
