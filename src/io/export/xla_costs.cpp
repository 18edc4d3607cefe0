// A profile of XLA's profile-guided latency estimator (docs/export.md): how long instructions take, by their names.
#include <fmt/format.h>

#include <map>

#include "cost/cost_model.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

// Names of instructions have letters, digits, dots, dashes and underscores.
std::string instruction_name(const Operation& operation) {
  std::string name = describe(operation);
  std::erase(name, ',');
  for (char& c : name) c = c == ' ' || c == '#' ? '_' : c;
  return name;
}

}  // namespace

void write_xla_costs(ExportSheet& sheet) {
  const StepGraph& graph = sheet.plan().graph;
  const Cluster cluster(sheet.plan().cluster);
  const CostModel cost(graph, cluster, sheet.profile());
  std::map<std::string, Nanos> costs;
  for (const Operation& op : graph.operations) costs.try_emplace(instruction_name(op), cost.alone(op));
  for (const auto& [name, time] : costs) {
    sheet.line(fmt::format("costs {{ name: \"{}\" cost_us: {:.3f} }}", name, static_cast<double>(time.value) * 1e-3));
  }
  sheet.warn(
      "the names are those of the plan: give them the names of the compiled module's instructions, then set "
      "--xla_gpu_pgle_profile_file_or_directory_path; XLA reads text from files that end in .pbtxt only");
}

}  // namespace weft
