#include "plan/plan.hpp"

namespace weft {

std::string_view name_of(QueueKind kind) {
  switch (kind) {
    case QueueKind::compute:
      return "compute";
    case QueueKind::extra:
      return "extra";
    case QueueKind::communication:
      return "communication";
  }
  return "?";
}

}  // namespace weft
