// K-FAC (Martens and Grosse 2015): which linear layers have curvature factors, and in which steps these are computed.
// PipeFisher (Osawa et al. 2022) computes them in the bubbles of a pipeline: so does planner/schedule/extra_work.hpp.
#pragma once

#include <cstdint>

#include "graph/step_graph.hpp"

namespace weft {

// Returns whether gradients of this role's weights are preconditioned: the linear layers of a transformer layer. The
// head's factor would have a row for every word, and routers and experts see few tokens.
bool has_curvature(Role role);

// Returns in which of every `interval` steps the factors of a linear layer are computed: equal layers take turns, and
// so do the layers' different products.
std::int64_t kfac_turn(std::int64_t layer, Role role, std::int64_t interval);

// Returns whether it gathers the gradient of such a layer from ZeRO's shards: inverses act on the whole.
bool gathers_gradient(const Operation& operation);

}  // namespace weft
