// Text as the manifest of a checkpoint, or as one rank's part of it: an Error, or what says the same when it is
// written.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "exec/checkpoint/manifest.hpp"

namespace {

template <class Parse>
auto parsed(const Parse& parse, const std::string& text) -> std::optional<decltype(parse(text, text))> {
  try {
    return parse(text, "fuzz");
  } catch (const weft::Error&) {
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto file = parsed(weft::parse_stored_file, text)) {
    if (weft::parse_stored_file(weft::stored_file_text(*file), "again") != *file) std::abort();
  }
  if (const auto manifest = parsed(weft::parse_manifest, text)) {
    const weft::CheckpointManifest again = weft::parse_manifest(weft::manifest_text(*manifest), "again");
    if (again.step != manifest->step || again.run != manifest->run || again.run_id != manifest->run_id ||
        again.files != manifest->files)
      std::abort();
  }
  return 0;
}
