// The command line: picks the command, reports errors once, and turns them into exit codes.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace weft {

// Exit codes other tools rely on.
enum ExitCode : int {
  kOk = 0,
  kAnswerIsNo = 1,  // a plan that fails verification, or none that fits in memory
  kBadInput = 2,
  kRunFailed = 3
};

// Results to `out`, errors to `err`; nothing else is printed anywhere.
int run_command_line(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace weft
