// Who may move the bytes of a transfer (collective/mover.hpp).
#pragma once

#include <string>

#include "graph/step_graph.hpp"

namespace weft {

// Whether it is a library's collective between GPUs of one node that NVLink joins, over links as their vendor states
// them: there NCCL's kernels for symmetric memory and its copy engines have a model (cost/movers.hpp).
bool stays_on_nvlink(const Cluster& cluster, const RankClass& rank_class, const Communication& communication);
// Whether the links of a level are those.
bool is_nvlink(const Cluster& cluster, LevelId level);

// NCCL's copy engines have these forms. They cannot reduce.
bool has_copy_engine_form(Collective collective);

// Why the mover that a transfer names cannot move it; empty where it can.
std::string mover_fault(const Cluster& cluster, const RankClass& rank_class, const Communication& communication);

}  // namespace weft
