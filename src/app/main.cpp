// The program: hands the command line to run_command_line and its streams to the terminal.
#include <climits>
#include <csignal>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "app/cli.hpp"
#include "app/terminal.hpp"
#include "app/terminal_output.hpp"

namespace {

// Keeps freed memory for the next table: plans make many large ones in sequence, and getting zeroed pages from the
// system each time took a tenth of the time.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  // A file that would grow beyond the limit of the process is an error of write(), reported as any other.
  std::signal(SIGXFSZ, SIG_IGN);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::streambuf* const target = std::cout.rdbuf();
  std::optional<weft::TerminalOutput> terminal;
  if (const std::size_t columns = weft::columns_of(std::cout); columns != weft::kAnyWidth) {
    std::cout.rdbuf(&terminal.emplace(*target, columns));
  }
  const int code = weft::run_command_line(arguments, std::cout, std::cerr);
  const bool written = static_cast<bool>(std::cout.flush());
  std::cout.rdbuf(target);  // which outlives the terminal's
  if (written) return code;
  std::cerr << "weft: the results could not be written to stdout (disk full?)\n";
  return weft::kRunFailed;
}
