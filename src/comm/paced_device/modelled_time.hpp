// How long the links of a cluster take for a collective: the closed form of a ring, or of direct messages, as the cost
// model has it (cost/cost_model.hpp).
#pragma once

#include "cluster/cluster.hpp"
#include "comm/communicator.hpp"

namespace weft {

struct ModelledTime {
  Nanos latency, moving;  // `moving`: where no other collective uses the links
  friend bool operator==(const ModelledTime&, const ModelledTime&) = default;
};
ModelledTime modelled_time(const Cluster& cluster, const PreparedCall& call);

}  // namespace weft
