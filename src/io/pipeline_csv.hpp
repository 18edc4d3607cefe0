// Pipeline schedules as the CSV files of torch.distributed.pipelining (docs/export.md): a row for each pipeline rank,
// an action in each cell, such as 2F0, 1UNSHARD or 3SEND_F1. Empty cells are pauses.
#pragma once

#include <string>

#include "plan/pipeline/pipeline_actions.hpp"

namespace weft {

// A pair (0F1;1B0)OVERLAP_F_B becomes its two actions. Throws Error with the file, the row, the column and the cell.
PipelineActions read_pipeline_csv(const std::string& text, const std::string& file_name);
std::string write_pipeline_csv(const PipelineActions& actions);

}  // namespace weft
