// Reading and writing whole files, with errors that name them.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include "base/error.hpp"

namespace weft {

inline std::string read_text_file(const std::string& name) {
  std::error_code ignored;
  if (std::filesystem::is_directory(name, ignored)) fail("{}: is a folder, not a file", name);
  std::ifstream file(name, std::ios::binary);
  if (!file) fail("{}: cannot be read", name);
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad() || text.bad()) fail("{}: cannot be read to its end", name);
  return std::move(text).str();
}

// Writes beside the target and renames, so that a failure never leaves half a file under its name.
inline void write_text_file(const std::filesystem::path& path, const std::function<void(std::ostream&)>& write) {
  const std::filesystem::path part = path.string() + ".part";
  {
    std::ofstream file(part, std::ios::binary);
    if (!file) fail("{}: cannot be written", part.string());
    write(file);
    file.close();
    if (!file) fail("{}: cannot be written to its end (disk full?)", part.string());
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) fail("{}: cannot be renamed from {}: {}", path.string(), part.string(), error.message());
}

inline void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("--out {}: cannot be created: {}", path.string(), error.message());
}

}  // namespace weft
