// Which library a kernel communicates with, by its name. Holistic Trace Analysis knows NCCL's names alone; jobs of
// today move much of their traffic by others.
#pragma once

#include <string_view>

namespace weft {

// "NCCL", "DeepEP", "NVSHMEM", ...; empty: its name is of no library that is known to communicate.
std::string_view communication_library(std::string_view kernel_name);

}  // namespace weft
