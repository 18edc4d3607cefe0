// Prepared calls of a rank as calls of NCCL, whoever makes those.
#pragma once

#include <functional>
#include <memory>

#include "comm/nccl/nccl_links.hpp"

namespace weft {

// `make_links` may throw Error; then all ranks do, with its words. All ranks call it.
std::unique_ptr<StreamCollectives> collectives_over(const NcclOptions& options, Exchange exchange,
                                                    const std::function<std::unique_ptr<NcclLinks>()>& make_links);

}  // namespace weft
