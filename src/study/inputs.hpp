// What a planning question is about: the model, the cluster, the layout, and what policies may assume.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cluster/cluster.hpp"
#include "collective/carried_program.hpp"
#include "cost/program_store.hpp"
#include "graph/layout.hpp"
#include "model/transformer.hpp"
#include "planner/policy/policy.hpp"

namespace weft {

struct Inputs {
  Transformer model;
  ClusterSpec cluster;
  Layout layout;
  PolicyOptions options = {};
  double budget_s = PlanSearch{}.budget_s;  // of policies that search
  std::uint64_t search_seed = PlanSearch{}.seed;
  Bytes reserve = {};                     // what the cluster's device has beside the memory that plans may use
  std::vector<ProgramRef> programs = {};  // that carry out the collectives which they fit
  std::shared_ptr<ProgramStore> program_store = {};  // of programs made for the cluster's topology
  std::vector<std::string> remarks = {};             // what people should know of the model's file
  std::vector<std::string> launch_flags = {};        // PlanConditions::launch_flags
  std::string condition_flags = {};  // those that the constants in force follow from: "--framework nemo"
};

}  // namespace weft
