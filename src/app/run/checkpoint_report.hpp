// What the report of a run says of its checkpoints.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "study/run/checkpoint_study.hpp"

namespace weft {

std::string checkpoint_text(const CheckpointStudy& study);
nlohmann::ordered_json checkpoint_json(const CheckpointStudy& study);

}  // namespace weft
