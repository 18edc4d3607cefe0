#include "app/cli.hpp"
#include "app/commands.hpp"

namespace weft {
namespace {

constexpr Command kSubcommands[] = {
    {"list", "algorithms of every collective: messages and bytes; --out writes them as MSCCL XML",
     run_collective_list_command},
    {"verify", "MSCCL XML -> does the program compute its collective?, with the reason when not",
     run_collective_verify_command},
    {"synthesize", "a machine's links -> a program along spanning trees at the rate of its slowest cut, with the proof",
     run_collective_synthesize_command},
    {"bench", "checked, then timed: as threads with emulated links, as processes, or under mpirun",
     run_collective_bench_command},
};

void print_usage(std::ostream& out) {
  out << "Collectives as programs: send, receive, reduce and copy instructions of every rank.\n\n"
      << "  weft collective SUBCOMMAND [flags]        weft collective SUBCOMMAND --help for its flags\n\n";
  print_commands(kSubcommands, 12, out);
  out << "\nExample:\n  weft collective list --ranks 8 --collective all_reduce\n";
}

}  // namespace

int run_collective_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  if (arguments.empty()) {
    print_usage(err);
    return kBadInput;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h") {
    print_usage(out);
    return kOk;
  }
  return run_named_command(kSubcommands, "weft collective has no such subcommand", arguments, out, err);
}

}  // namespace weft
