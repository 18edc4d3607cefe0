// NCCL and CUDA take long to load and are missing on most machines, so they are linked to a module that is opened at
// the first use: beside an installed program first, then where it was built.
#include <dlfcn.h>

#include "base/error.hpp"
#include "base/module_file.hpp"
#include "comm/nccl/nccl_collectives.hpp"

namespace weft {
namespace {

std::unique_ptr<NcclLinks> open_links(const NcclOptions& options) {
  const OpenedModule opened = open_module("the collectives of NCCL", {WEFT_NCCL_INSTALLED_AT, WEFT_NCCL_BUILT_AT});
  if (opened.handle == nullptr) fail("{}", opened.problem);
  const auto make = reinterpret_cast<MakeNcclLinks>(dlsym(opened.handle, kNcclLinksSymbol));
  if (make == nullptr) fail("{}: not Weft's module for NCCL", opened.path);
  return std::unique_ptr<NcclLinks>(make(options));
}

}  // namespace

std::unique_ptr<StreamCollectives> make_nccl_collectives(const NcclOptions& options, Exchange exchange) {
  return collectives_over(options, std::move(exchange), [&] { return open_links(options); });
}

}  // namespace weft
