// Switches that add up what arrives over several links, or send copies of it to several (NVLS, SHARP), as ranks of a
// program: helpers (collective/program.hpp), which receive, reduce and send, and have nothing of their own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/topology.hpp"
#include "collective/collective.hpp"
#include "collective/program.hpp"

namespace weft {

struct SwitchRanks {
  // The switches that take part are devices here, behind all others, whose ranks stay. Switches that are wired alike
  // and can do the same are one, because messages are spread over them.
  Topology topology;
  std::vector<std::string> names;  // of the ranks behind the devices: "node0.nvswitch0 and 3 like it"
};

// The ways in which switches may take part: all that can do what the collective needs (an all_gather multicasts, a
// reduce_scatter reduces, an all_reduce does both), and only those within or between nodes where both kinds exist. A
// tree reaches every switch that takes part, which is too much where its links are slow. Empty: there is none.
std::vector<SwitchRanks> switch_ranks_for(const Topology& topology, Collective kind);

// Whether there is one.
bool has_program_in_switches(const Topology& topology, Collective kind);
// "reduces and multicasts": what a switch must be able to for the collective.
std::string_view what_switches_must_do(Collective kind);

// How many ranks of a program stand behind its members.
std::int64_t switches_of(const Program& program);
// Why there are no such switches between the members, in words; empty where there are, and for programs without any. A
// program says only how many switches it has steps in.
std::string switch_fault(const Program& program, const Cluster& cluster, const std::vector<Rank>& members);

// The wiring with switches that only pass on.
Topology without_switch_abilities(Topology topology);

}  // namespace weft
