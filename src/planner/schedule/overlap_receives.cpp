#include "planner/schedule/overlap_receives.hpp"

namespace weft {

void overlap_receives(Plan& plan) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const auto& transfer = plan.graph.operations[i].communication;
    if (transfer && transfer->collective == Collective::send_recv && !transfer->sends) plan.issues[i].blocking = false;
  }
}

}  // namespace weft
