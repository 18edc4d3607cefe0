// Runs a command line in the test process and keeps what it printed.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "app/cli.hpp"
#include "base/text.hpp"

namespace weft {

struct CliResult {
  int code = 0;
  std::string out, err;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Arguments separated by single spaces.
inline CliResult weft_cli(const std::string& line) {
  std::ostringstream out, err;
  std::vector<std::string> arguments;
  for (const std::string& word : split(line, ' ')) {
    if (!word.empty()) arguments.push_back(word);
  }
  // Tests need a plan, not the best one.
  const bool plans = !arguments.empty() && arguments.front() == "plan";
  if (plans && !contains(line, "--budget") && !contains(line, "--help")) {
    arguments.insert(arguments.end(), {"--budget", "0.1"});
  }
  CliResult result;
  result.code = run_command_line(arguments, out, err);
  result.out = out.str();
  result.err = err.str();
  return result;
}

// A folder of its own for a test, removed at the end.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("weft_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace weft
