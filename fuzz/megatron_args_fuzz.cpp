// Any bytes as a Megatron launch script: read_megatron_args returns a job whose model can be counted, or throws
// weft::Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "io/megatron/megatron_args.hpp"
#include "model/counts.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  weft::LaunchJob job;
  try {
    job = weft::read_megatron_args(std::string(data, data + size), "train.sh");
  } catch (const weft::Error&) {
    return 0;
  }
  // Outside the try: a model that was accepted counts without an error.
  if (job.model) WEFT_CHECK(weft::active_parameters(*job.model) > 0);
  for (const weft::LaunchSetting& setting : job.settings) WEFT_CHECK(!setting.flag.empty() && !setting.value.empty());
  for (const weft::IgnoredFlag& flag : job.ignored) WEFT_CHECK(!flag.flag.empty() && !flag.reason.empty());
  return 0;
}
