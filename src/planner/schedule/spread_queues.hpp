// One communicator of a library may leave links idle that two at once would fill (LibraryProfile::at_once). So the
// transfers of a queue that run beside compute take turns on several queues.
#pragma once

#include "plan/plan.hpp"

namespace weft {

// Each queue's transfers that run beside compute go to `queues` queues in turn, in the order of their issue. Those with
// members in other classes stay: all members must issue a queue's transfers to one.
void spread_over_queues(Plan& plan, int queues);

}  // namespace weft
