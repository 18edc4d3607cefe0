// What TorchTitan calls the schedules and the modules of a plan, in its old files and in its functions of today.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/layout.hpp"
#include "model/transformer.hpp"

namespace weft {

// Returns nothing where TorchTitan has no such schedule.
std::optional<std::string_view> torchtitan_schedule(const Layout& layout);

// Returns the modules of each model chunk in the order of the model, as lists of TOML and of Python have them. `head`:
// the module's name, which has changed.
std::vector<std::string> torchtitan_modules(const Layout& layout, const Transformer& model, std::string_view head);

// Returns over how many data-parallel ranks parameters are sharded. TorchTitan shards over data and context parallel
// ranks together; only those of data parallelism are counted. 1: they are replicated.
std::int64_t torchtitan_shards(const Layout& layout);

}  // namespace weft
