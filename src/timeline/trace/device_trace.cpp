// What names in a trace mean: kinds of kernels, calls of the runtime, types of elements.
#include "timeline/trace/device_trace.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "timeline/trace/communication_library.hpp"

namespace weft {
namespace {

constexpr EnumArray<KernelKind, std::string_view, kKernelKinds> kKernelKindNames = {"computation", "communication",
                                                                                    "memory", "other"};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::string_view name_of(KernelKind kind) {
  return kKernelKindNames[kind];
}

KernelKind kernel_kind(std::string_view name) {
  const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
  if (!communication_library(name).empty()) return KernelKind::communication;
  if (begins("Memcpy") || begins("Memset") || begins("dma")) return KernelKind::memory;
  if (contains(name, "Memcpy") || contains(name, "Memset") || contains(name, "Sync")) return KernelKind::other;
  return KernelKind::computation;
}

HostCall host_call(std::string_view name) {
  const auto has = [&](std::string_view part) { return contains(name, part); };
  if (has("EventRecord")) return HostCall::event_record;
  if (has("StreamWaitEvent")) return HostCall::stream_wait_event;
  if (has("EventSynchronize")) return HostCall::event_synchronize;
  if (has("StreamSynchronize")) return HostCall::stream_synchronize;
  if (has("DeviceSynchronize") || has("CtxSynchronize")) return HostCall::device_synchronize;
  if (has("Launch") || has("Memcpy") || has("Memset")) return HostCall::launch;
  return HostCall::other;
}

std::int32_t element_bytes(std::string_view dtype) {
  // PyTorch writes ScalarType names ("BFloat16") in NCCL's arguments and C++ names ("c10::BFloat16", "long int") in
  // "Input type".
  std::string plain;
  for (const char c : dtype) plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (plain.starts_with("c10::")) plain.erase(0, 5);
  static constexpr std::array<std::pair<std::string_view, std::int32_t>, 31> kSizes = {{
      {"float", 4},
      {"float32", 4},
      {"double", 8},
      {"float64", 8},
      {"half", 2},
      {"float16", 2},
      {"bfloat16", 2},
      {"char", 1},
      {"signed char", 1},
      {"byte", 1},
      {"unsigned char", 1},
      {"int8", 1},
      {"uint8", 1},
      {"bool", 1},
      {"short", 2},
      {"short int", 2},
      {"int16", 2},
      {"int", 4},
      {"int32", 4},
      {"long", 8},
      {"long int", 8},
      {"int64", 8},
      {"complexfloat", 8},
      {"complexhalf", 4},
      {"complexdouble", 16},
      {"float8_e4m3fn", 1},
      {"float8_e5m2", 1},
      {"float8_e4m3fnuz", 1},
      {"float8_e5m2fnuz", 1},
      {"uint32", 4},
      {"uint64", 8},
  }};
  const auto* const found =
      std::find_if(kSizes.begin(), kSizes.end(), [&](const auto& entry) { return entry.first == plain; });
  return found == kSizes.end() ? 0 : found->second;
}

}  // namespace weft
