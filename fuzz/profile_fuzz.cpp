// Bytes as a profile: a profile or an Error, never anything else; what is accepted is written so that it reads back the
// same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "io/profile_json.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::optional<weft::Profile> profile;
  try {
    profile = weft::read_profile(text, "fuzz.json", weft::default_profile());
  } catch (const weft::Error&) {
    return 0;
  }
  const std::string written = weft::profile_to_json(*profile).dump();
  const weft::Profile again = weft::read_profile(written, "written", weft::default_profile());
  if (weft::profile_to_json(again).dump() != written) std::abort();
  return 0;
}
