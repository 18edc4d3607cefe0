// From flags to model, cluster and layout, with the defaults of the command line.
#pragma once

#include "app/flags.hpp"
#include "cost/profile.hpp"
#include "io/plan_json.hpp"
#include "study/inputs.hpp"

namespace weft {

void declare_input_flags(Flags& flags);

// What a command decides by prediction where a flag says auto; others are refused.
enum class Decides { nothing, layers, everything };

// Throws Error naming the flag or file, the value and what is allowed.
Inputs read_inputs(const Flags& flags, Decides decides = Decides::nothing);
// The part of it that refuses what the command does not decide.
void require_decided(const Flags& flags, Decides decides);
// Whether the order of a pipeline is searched for and nothing says whether its chunks lie in waves or in loops.
bool leaves_placement_open(const Flags& flags);

// Its parts, for callers that read many layouts of one model on one cluster.
Transformer read_model(const Flags& flags);
// Its devices have the memory that plans may use: what --memory says, or all but the reserve.
ClusterSpec read_cluster(const Flags& flags);
// What the driver, a CUDA context, NCCL and the allocator's fragmentation take of a GPU (docs/accuracy.md); nothing of
// a CPU.
Bytes default_reserve(const Device& device);
Layout read_layout(const Flags& flags, const Transformer& model, const Cluster& cluster);
// On a local cluster, where plans are run, experts that drop nothing have a slot for every token; few of them are
// filled, and unless --expert-exchange says otherwise only those travel. Elsewhere nothing changes.
void make_room_for_all(const Flags& flags, const Cluster& cluster, Transformer& model, Layout& layout);

PolicyOptions read_policy_options(const Flags& flags);
double read_budget(const Flags& flags);
// The constants that come with Weft, with what --profile changes.
Profile read_profile(const Flags& flags);
// The constants that a plan file says its time depends on, with what --profile changes; those that come with Weft where
// the file says nothing.
Profile read_profile_of_plan(const Flags& flags, const SavedPlan& saved);

// Whether the text of --model or --cluster names a file; a preset otherwise.
bool names_a_file(const std::string& text);

}  // namespace weft
