// The program: hands the command line to run_command_line and its streams to the terminal.
#include <iostream>
#include <string>
#include <vector>

#include "app/cli.hpp"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const int code = weft::run_command_line(arguments, std::cout, std::cerr);
  if (std::cout.flush()) return code;
  std::cerr << "weft: the results could not be written to stdout (disk full?)\n";
  return weft::kRunFailed;
}
