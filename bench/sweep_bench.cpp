// How fast is a search over layouts? A GPT of 530 billion parameters on 5,128 A100: about 8,100 combinations of layout
// and policy, each feasible one planned and simulated to a timeline. The answer is checked: the best row, planned alone
// and verified, has the figures that the sweep gave it.
//
// To compare with: calculon's search has 8,112 configurations of which 1,080 are feasible, and takes 24 s on two cores
// without a timeline. Here six policies share a layout's graph, and those that decide the same for it share a plan.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/cli.hpp"
#include "base/text.hpp"
#include "planner/policy/policy.hpp"

namespace {

// A replica of the model lies inside a node (tp * pp <= 8). ZeRO 3 alone: the weights of 530 billion parameters on
// eight devices never fit below it.
constexpr std::string_view kJob =
    "plan --json --layers 105 --hidden 20480 --heads 128 --seq 2048 --cluster dgx-a100:641 --mesh-order tp,cp,pp,dp "
    "--precision fp16 --attention unfused --zero 3 --global-batch 2564 --round-batch";
// Everything but policies and micro-batches.
constexpr std::string_view kKeys =
    "tp=1,2,4,8;pp=1,2,4,8;recompute=none,selective,full;sequence-parallel=false,true;clip-grad=0,1";
constexpr double kOfThem = 4 * 4 * 3 * 2 * 2;
constexpr double kCombinations = 8112;

}  // namespace

int main() {
  const std::vector<std::string> policies = weft::policy_names();
  const auto micro_batches = std::max(1L, std::lround(kCombinations / kOfThem / static_cast<double>(policies.size())));
  const std::string sweep =
      fmt::format("{};micro-batch=1..{};policy={}", kKeys, micro_batches, fmt::join(policies, ","));
  std::ostringstream out, err;
  std::vector<std::string> arguments = weft::split(kJob, ' ');
  arguments.insert(arguments.end(), {"--sweep", sweep});
  const int code = weft::run_command_line(arguments, out, err);
  if (code != weft::kOk) {
    fmt::print("sweep: exit code {}: {}\n", code, err.str());
    return 1;
  }
  const nlohmann::json json = nlohmann::json::parse(out.str());
  const nlohmann::json& result = json.at("sweep");
  const nlohmann::json& best = result.at("rows").at(0);
  const nlohmann::json& alone = json.at("policies").at(json.at("best").get<std::string>());
  const bool right =
      best.at("step_s") == alone.at("step_s") && best.at("memory_peak_bytes") == alone.at("memory_peak_bytes");
  const double seconds = result.at("seconds"), feasible = result.at("feasible");
  utsname machine{};
  uname(&machine);
  fmt::print(
      "{{\"bench\": \"sweep\", \"combinations\": {}, \"feasible\": {}, \"policies\": {}, \"seconds\": {:.2f}, "
      "\"ms_per_timeline\": {:.2f}, \"threads\": {}, \"machine\": \"{}\"}}\n",
      result.at("combinations").get<int>(), feasible, policies.size(), seconds, 1e3 * seconds / feasible,
      std::thread::hardware_concurrency(), machine.machine);
  if (!right) fmt::print("sweep: WRONG: the best row differs from its plan made alone\n");
  return right ? 0 : 1;
}
