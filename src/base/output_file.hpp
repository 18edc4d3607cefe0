// Files that appear under their name only when all of their bytes are written: a failure leaves what was there before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostream>

namespace weft {

enum class Durability : std::uint8_t {
  written,      // the system has it
  synchronized  // the disk has it
};

// Calls `write` with a stream to a file beside the target, which then takes the target's name. Throws Error where the
// file cannot be created, RunFailed where it cannot be written to its end (disk full, file size limit); either names
// it, and nothing is left of the attempt.
void write_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write,
                Durability durability = Durability::written);

}  // namespace weft
