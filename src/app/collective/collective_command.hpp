// `weft collective SUBCOMMAND`, one file per subcommand.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace weft {

int run_collective_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

int run_collective_list_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
int run_collective_bench_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);
int run_collective_verify_command(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace weft
