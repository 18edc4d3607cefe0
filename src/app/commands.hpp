// The commands of `weft`, the subcommands of `weft collective` and `weft cluster`, and how one of them is found.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

using Arguments = std::vector<std::string>;

int run_plan_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_run_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
// Exit code 0: the plan is safe and fits in memory; 1: it is unsafe (then it is not simulated) or does not fit.
int run_simulate_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_analyze_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_report_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_calibrate_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_verify_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
// Exit code 1: the plan is unsafe, and nothing is written.
int run_export_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_cluster_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_collective_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_collective_list_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_collective_bench_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_collective_synthesize_command(const Arguments& arguments, std::ostream& out, std::ostream& err);
int run_collective_verify_command(const Arguments& arguments, std::ostream& out, std::ostream& err);

struct Command {
  std::string_view name, summary;
  int (*run)(const Arguments& arguments, std::ostream& out, std::ostream& err);
};

// Prints a line for each command, with its name in so many columns.
void print_commands(std::span<const Command> commands, std::size_t columns, std::ostream& out);
// Runs the command that the first argument names with the others. Throws Error that says `missing` where there is none.
int run_named_command(std::span<const Command> commands, std::string_view missing, const Arguments& arguments,
                      std::ostream& out, std::ostream& err);

}  // namespace weft
