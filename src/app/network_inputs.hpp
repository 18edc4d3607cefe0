// What --links and --nccl say of the network between GPUs.
#pragma once

#include "app/flags.hpp"
#include "cost/profile.hpp"

namespace weft {

// The value of --links that stands for the columns of a table of measured runs.
inline constexpr const char* kLinksOfColumns = "columns";

void declare_network_flags(Flags& flags);
// Changes what the profile says of the cluster's links, where the flags are given. Throws Error naming the flag or
// file.
void apply_network(const Flags& flags, Profile& profile);

}  // namespace weft
