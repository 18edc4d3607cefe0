// Any bytes as a pipeline schedule: actions that are written as they were read and can be verified, or weft::Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "io/pipeline_csv.hpp"
#include "plan/pipeline/verify_actions.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::PipelineActions actions;
  try {
    actions = weft::read_pipeline_csv(std::string(data, data + size), "schedule.csv");
  } catch (const weft::Error&) {
    return 0;
  }
  weft::verify_actions(actions);
  std::size_t ranks_with_actions = 0;
  for (const auto& rank : actions) ranks_with_actions += rank.empty() ? 0 : 1;
  if (ranks_with_actions == actions.size()) {
    WEFT_CHECK(weft::read_pipeline_csv(weft::write_pipeline_csv(actions), "again") == actions);
  }
  return 0;
}
