#include "timeline/trace/communication_library.hpp"

#include <algorithm>

namespace weft {
namespace {

struct KnownName {
  std::string_view part, library;
  bool begins = false;  // the name begins with it
};

// In this order: the first that fits. Names of namespaces and kernels in the libraries' own sources.
constexpr KnownName kNames[] = {
    {"nccl", "NCCL", true},
    {"ncclKernel", "NCCL"},
    {"hip", "RCCL", true},  // as Holistic Trace Analysis has it
    {"rccl", "RCCL"},
    {"hccl", "HCCL", true},
    {"Hccl", "HCCL"},
    {"hcom_", "HCCL"},
    {"deep_ep::", "DeepEP"},
    {"internode::", "DeepEP"},
    {"intranode::", "DeepEP"},
    {"internode_ll::", "DeepEP"},
    {"hybrid_ep", "HybridEP"},
    {"nvshmem", "NVSHMEM"},
    {"userbuffers", "user buffers"},
    {"symm_mem", "symmetric memory"},
    {"multimem_", "symmetric memory"},
    {"one_shot_all_reduce", "symmetric memory"},
    {"two_shot_all_reduce", "symmetric memory"},
    {"cross_device_reduce", "a custom all_reduce"},
    {"mscclpp", "MSCCL++"},
    {"mscclKernel", "MSCCL"},
    {"Memcpy PtoP", "copy engines", true},  // from one device to another
};

}  // namespace

std::string_view communication_library(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  const auto found = std::ranges::find_if(kNames, [&](const KnownName& known) {
    return known.begins ? name.starts_with(known.part) : name.find(known.part) != std::string_view::npos;
  });
  return found == std::ranges::end(kNames) ? std::string_view() : found->library;
}

}  // namespace weft
