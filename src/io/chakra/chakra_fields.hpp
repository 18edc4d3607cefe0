// Numbers of Chakra's et_def.proto, for those who write and who read it.
#pragma once

#include <cstdint>

namespace weft::chakra {

enum NodeField : std::uint32_t {
  kId = 1,
  kName,
  kType,
  kControlDependencies,
  kDataDependencies,
  kStart,
  kDuration,
  kAttribute = 10
};
enum AttributeField : std::uint32_t {
  kAttributeName = 1,
  kInt32 = 7,
  kInt64 = 9,
  kUint32 = 11,
  kUint64 = 13,
  kBool = 27,
  kString = 29
};

}  // namespace weft::chakra
