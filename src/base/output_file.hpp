// Writes files that appear under their name only when all bytes are written. After a failure the old file is still
// there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>

namespace weft {

enum class Durability : std::uint8_t {
  written,      // the operating system has the bytes
  synchronized  // the disk has the bytes
};

// Calls `write` with a stream to a temporary file beside the target, then renames that file to the target. Throws Error
// where the file cannot be created and RunFailed where it cannot be written completely (disk full, file size limit).
// Both name the file, and the temporary file is removed.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write,
                Durability durability = Durability::written);

}  // namespace weft
