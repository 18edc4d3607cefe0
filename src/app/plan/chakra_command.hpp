// `weft plan --chakra`: execution traces of MLCommons Chakra as graphs to plan (docs/chakra.md).
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include "app/flags.hpp"
#include "study/chakra/traced_step.hpp"

namespace weft {

void declare_chakra_flags(Flags& flags);

// `where` is a folder, or files separated by commas; a folder's comm_groups.json says the members of groups unless
// `groups` names another file.
struct ChakraInputs {
  std::vector<std::string> files;
  std::vector<ChakraGroup> groups;
};
ChakraInputs find_chakra_inputs(const std::string& where, const std::optional<std::string>& groups);
TracedStep read_traced_step(const ChakraInputs& inputs);

// Exit code 1: the trace's own order deadlocks.
int run_chakra_command(const Flags& flags, std::ostream& out, std::ostream& err);

}  // namespace weft
