// The measured operations of a profile: [{"kind": "gemm", "phase": "forward", "dtype": "fp32", "dims": [...],
// "seconds": ...}, ...] (docs/profile-format.md).
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "graph/operation.hpp"
#include "io/json/json_reader.hpp"

namespace weft {

nlohmann::ordered_json measured_operations_to_json(const std::map<OpKey, Nanos>& operations);
// Reads the array under `key`. Throws Error on an operation that is listed twice.
std::map<OpKey, Nanos> read_measured_operations(const JsonObject& object, const std::string& key);

}  // namespace weft
