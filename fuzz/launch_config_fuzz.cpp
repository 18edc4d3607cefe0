// Any bytes as a configuration file of DeepSpeed and of TorchTitan: a job whose settings have names and values, or
// weft::Error. The same for Transformer Engine's table of userbuffers.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.hpp"
#include "io/launchers/deepspeed_job.hpp"
#include "io/launchers/torchtitan_job.hpp"
#include "io/userbuffer_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(data, data + size);
  for (const auto read : {weft::read_deepspeed_config, weft::read_torchtitan_config}) {
    weft::LaunchJob job;
    try {
      job = read(text, "job");
    } catch (const weft::Error&) {
      continue;
    }
    for (const weft::LaunchSetting& setting : job.settings) {
      WEFT_CHECK(!setting.flag.empty() && !setting.value.empty());
    }
    for (const weft::IgnoredFlag& flag : job.ignored) WEFT_CHECK(!flag.reason.empty());
  }
  try {
    const weft::UserbufferTable table = weft::read_userbuffer_config(text, "userbuffers");
    for (const weft::UserbufferUse& use : table.uses) WEFT_CHECK(use.thread_blocks > 0);
  } catch (const weft::Error&) {
    return 0;
  }
  return 0;
}
