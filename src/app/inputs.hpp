// From flags to model, cluster and layout, with the defaults of the command line.
#pragma once

#include "app/flags.hpp"
#include "cluster/cluster.hpp"
#include "graph/layout.hpp"
#include "model/transformer.hpp"
#include "plan/policy/policy.hpp"

namespace weft {

void declare_input_flags(Flags& flags);

struct Inputs {
  Transformer model;
  ClusterSpec cluster;
  Layout layout;
  PolicyOptions options = {};
};
// Throws Error naming the flag or file, the value and what is allowed.
Inputs read_inputs(const Flags& flags);

}  // namespace weft
