// Devices that are like a known one. Whatever goes by a device's name (its efficiencies, its rated power, what NCCL
// takes of it) takes a "h100~slow" for a h100.
#pragma once

#include <string>
#include <string_view>

namespace weft {

inline constexpr char kLikeMark = '~';

// Returns the known device that a device is like, or its own name where it is like none.
constexpr std::string_view kind_of_device(std::string_view name) {
  return name.substr(0, name.find(kLikeMark));
}

inline std::string name_of_device_like(std::string_view kind, std::string_view label) {
  return std::string(kind_of_device(kind)) + kLikeMark + std::string(label);
}

}  // namespace weft
