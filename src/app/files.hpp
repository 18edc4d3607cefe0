// Reading and writing whole files, with errors that name them.
#pragma once

#include <filesystem>
#include <functional>

#include "base/error.hpp"
#include "base/input_file.hpp"  // read_text_file
#include "base/output_file.hpp"

namespace weft {

inline void write_text_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  write_file(path, write);
}

inline void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("--out {}: cannot be created: {}", path.string(), error.message());
}

}  // namespace weft
