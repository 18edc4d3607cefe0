// The flags of a launch script: "--name value ..." and "--name=value", wherever the script keeps them.
#pragma once

#include <string>
#include <vector>

namespace weft {

struct LaunchFlag {
  std::string name;                 // "--hidden-size"
  std::vector<std::string> values;  // the words up to the next flag
  int line = 0;
  friend bool operator==(const LaunchFlag&, const LaunchFlag&) = default;
};

// From the last command that runs a Python program; without one, from every command; where no command has flags, from
// every array. Throws Error naming the file where there is no flag at all, or as read_shell does.
std::vector<LaunchFlag> read_launch_flags(const std::string& text, const std::string& file_name);

}  // namespace weft
