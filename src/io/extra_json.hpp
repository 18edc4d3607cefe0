// Reader and writer of extra work: a user's tasks and what of a step may wait (graph/extra_task.hpp), in a file of
// their own (docs/extra-format.md) and in the layout of a plan.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/layout.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

nlohmann::ordered_json extra_to_json(const Layout& layout);
// Reads the keys 'tasks' and 'may_wait' into the layout.
void read_extra(const JsonObject& object, Layout& layout);
// Reads a file of `--extra` into the layout. Throws Error with file, key, value and what is allowed.
void read_extra_file(const std::string& text, const std::string& file_name, Layout& layout);

}  // namespace weft
