// How fast is a search over layouts? A GPT of 530 billion parameters on 5,128 A100: about 8,112 combinations of layout
// and policy, each feasible one planned and simulated to a timeline. The answer is checked: the best row, planned alone
// and verified, has the figures that the sweep gave it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "app/cli.hpp"
#include "plan/policy/policy.hpp"

namespace {

// Everything but policies and micro-batches. ZeRO 0 and 1 are left out: their weights and gradients never fit.
const std::string kKeys =
    "tp=1,2,4,8;pp=1,2,4,8;vpp=1,3;recompute=none,selective,full;zero=2,3;sequence-parallel=false,true";
constexpr double kOfThem = 4 * 4 * 2 * 3 * 2 * 2;
constexpr double kCombinations = 8112;

}  // namespace

int main() {
  const std::vector<std::string> policies = weft::policy_names();
  const auto micro_batches = std::max(1L, std::lround(kCombinations / kOfThem / static_cast<double>(policies.size())));
  const std::string sweep =
      fmt::format("{};micro-batch=1..{};policy={}", kKeys, micro_batches, fmt::join(policies, ","));
  std::ostringstream out, err;
  const int code = weft::run_command_line(
      {"plan",        "--json",  "--layers",       "105",       "--hidden",      "20480",       "--heads",
       "128",         "--seq",   "2048",           "--cluster", "dgx-a100:641",  "--precision", "fp16",
       "--attention", "unfused", "--global-batch", "2564",      "--round-batch", "--sweep",     sweep},
      out, err);
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
