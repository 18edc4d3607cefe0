#include "graph/extra_task.hpp"

#include "base/enum_name.hpp"

namespace weft {

std::string_view name_of(WorkThatWaits work) {
  static constexpr std::string_view kNames[] = {"weight_grads", "updates", "encodings"};
  return enum_name(kNames, work);
}

}  // namespace weft
