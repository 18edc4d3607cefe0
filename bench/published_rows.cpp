#include "published_rows.hpp"

#include <fmt/format.h>

#include <fstream>
#include <map>

#include "base/error.hpp"

namespace weft {
namespace {

using Row = std::map<std::string, std::string>;

// Cells may be quoted; no cell of these files holds a line end.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      result.emplace_back();
    } else if (c != '\r') {
      result.back() += c;
    }
  }
  return result;
}

std::vector<Row> read_csv(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return {};
  const std::vector<std::string> header = cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> values = cells(line);
    Row row;
    for (std::size_t i = 0; i < header.size() && i < values.size(); ++i) row[header[i]] = values[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

double number(const Row& row, const std::string& key) {
  return std::stod(row.at(key));
}

std::int64_t integer(const Row& row, const std::string& key) {
  return std::stoll(row.at(key));
}

// Gradients are clipped where a run's script says nothing (megatron/training/arguments.py, clip_grad).
constexpr const char* kMegatronClips = " --clip-grad 1";

// vTrain's runs: A100, Megatron-DeepSpeed, 1F1B, full recomputation, no overlap.
PublishedSet vtrain(const std::string& name, const std::vector<Row>& rows, bool many_nodes) {
  PublishedSet set{name, {}};
  for (const Row& r : rows) {
    const std::int64_t gpus = integer(r, "# GPUs");
    const std::string cluster =
        many_nodes ? fmt::format("dgx-a100:{},nic=800Gb/s", gpus / 8) : fmt::format("dgx-a100:1,gpus={}", gpus);
    const std::string flags = fmt::format(
        "--layers {} --hidden {} --heads {} --seq {} --cluster {} --tp {} --pp {} --dp {} --micro-batch {} "
        "--global-batch {} --precision fp16 --attention unfused --recompute full --policy serial{}",
        r.at("# layers"), r.at("hidden size"), r.at("attention heads"), r.at("sequence length"), cluster,
        r.at("tensor parallelism"), r.at("pipeline parallelism"), r.at("data parallelism"), r.at("micro batch"),
        r.at("global batch"), kMegatronClips);
    set.rows.push_back(
        {fmt::format("h {} L {}, {} GPUs, tp {} pp {} dp {}, micro-batch {}, batch {}", r.at("hidden size"),
                     r.at("# layers"), gpus, r.at("tensor parallelism"), r.at("pipeline parallelism"),
                     r.at("data parallelism"), r.at("micro batch"), r.at("global batch")),
         flags, Measure::step_seconds, number(r, "iteration time (ms)") / 1e3});
  }
  return set;
}

// A row of training.csv on DGX A100, unfused attention (the runs of 2021 to 2023 in it had no other).
std::string dgx_a100_flags(const Row& r, const std::string& recompute, const std::string& more) {
  std::string flags = fmt::format(
      "--layers {} --hidden {} --heads {} --seq {} --vocab {} --cluster dgx-a100:{} --tp {} --pp {} --dp {} "
      "--micro-batch {} --global-batch {} --precision fp16 --attention unfused --recompute {} --policy serial",
      r.at("layers"), r.at("hidden"), r.at("heads"), r.at("seq"), r.at("vocab").empty() ? "51200" : r.at("vocab"),
      (integer(r, "n_gpus") + 7) / 8, r.at("tp"), r.at("pp"), r.at("dp"), r.at("micro_batch"), r.at("global_batch"),
      recompute);
  if (!r.at("vpp").empty() && r.at("vpp") != "1") flags += " --vpp " + r.at("vpp");
  if (r.at("sp") == "yes") flags += " --sequence-parallel";
  return flags + more;
}

std::string row_name(const Row& r) {
  return fmt::format("{}, {} GPUs, tp {} pp {} vpp {} dp {}, micro-batch {}, recompute {}, batch {}", r.at("model"),
                     r.at("n_gpus"), r.at("tp"), r.at("pp"), r.at("vpp").empty() ? "1" : r.at("vpp"), r.at("dp"),
                     r.at("micro_batch"), r.at("recompute").empty() ? "none" : r.at("recompute"), r.at("global_batch"));
}

// The papers' own count of a step's FLOPs, recomputation included (Narayanan et al. 2021, equation 3).
double paper_flops(const Row& r) {
  const double batch = number(r, "global_batch"), seq = number(r, "seq"), layers = number(r, "layers");
  const double hidden = number(r, "hidden"), vocab = number(r, "vocab");
  return 96 * batch * seq * layers * hidden * hidden * (1 + seq / (6 * hidden) + vocab / (16 * layers * hidden));
}

PublishedSet korthikanti(const std::vector<Row>& rows) {
  PublishedSet set{"Korthikanti et al. 2022, Table 5 and section 6.3", {}};
  for (const Row& r : rows) {
    if (r.at("source").find("2205.05198") == std::string::npos || r.at("metric") != "iteration_s") continue;
    set.rows.push_back(
        {row_name(r), dgx_a100_flags(r, r.at("recompute"), kMegatronClips), Measure::step_seconds, number(r, "value")});
  }
  return set;
}

PublishedSet narayanan(const std::vector<Row>& rows) {
  PublishedSet set{"Narayanan et al. 2021 (SC21), Table 1", {}};
  for (const Row& r : rows) {
    if (r.at("source").find("SC21 Table 1") == std::string::npos || r.at("metric") != "tflops_per_gpu") continue;
    set.rows.push_back({row_name(r), dgx_a100_flags(r, "full", kMegatronClips), Measure::step_seconds,
                        paper_flops(r) / (number(r, "n_gpus") * number(r, "value") * 1e12)});
  }
  return set;
}

// What the first stage keeps for backward, as the paper draws it (its figure 1; the numbers are calculon's). The batch
// is not given: enough micro-batches to fill the pipeline.
PublishedSet activations(const std::vector<Row>& rows) {
  PublishedSet set{"Korthikanti et al. 2022, activations of the first stage", {}};
  for (Row r : rows) {
    if (r.at("metric") != "mem_activations_GiB") continue;
    const std::int64_t stages = integer(r, "pp");
    r["global_batch"] = std::to_string(integer(r, "micro_batch") * (stages == 1 ? 1 : 8 * stages));
    set.rows.push_back({row_name(r), dgx_a100_flags(r, r.at("recompute"), kMegatronClips), Measure::activations_gib,
                        number(r, "value")});
  }
  return set;
}

// Runs of one method of the zero-bubble paper: first and last stage hold a layer less. ZB-1p and ZB-2p are searched
// orders; a stage holds as many times the stages' number of passes as `held_per_stage` says. (1F1B-I has chunks of one
// layer, of which the first and the last would have none.)
void zero_bubble(const std::vector<Row>& rows, const std::string& method, std::int64_t held_per_stage,
                 PublishedSet& speed, PublishedSet& memory) {
  for (const Row& r : rows) {
    const std::string& model = r.at("model");
    if (r.at("source").find("Zero Bubble") == std::string::npos || !model.ends_with(method)) continue;
    const std::int64_t stages = integer(r, "pp"), layers = (integer(r, "layers") + 2) / stages;
    const std::int64_t most_held = held_per_stage * stages;
    std::string split = " --stage-layers ";
    for (std::int64_t s = 0; s < stages; ++s) {
      split += fmt::format("{}{}", s == 0 ? "" : ",", s == 0 || s == stages - 1 ? layers - 1 : layers);
    }
    // The searched orders clip after the fact (the paper's section 4), so that no stage waits for another's norm.
    const std::string flags = dgx_a100_flags(r, "none", most_held == 0 ? split + kMegatronClips : split);
    if (r.at("metric") == "samples_per_gpu_per_s") {
      speed.rows.push_back({row_name(r), flags, Measure::step_seconds,
                            number(r, "global_batch") / number(r, "n_gpus") / number(r, "value"), most_held});
    } else if (r.at("metric") == "peak_mem_GB") {
      memory.rows.push_back({row_name(r), flags, Measure::peak_memory_gib, number(r, "value"), most_held});
    }
  }
}

}  // namespace

std::vector<PublishedSet> published_sets(const std::filesystem::path& folder) {
  const std::vector<Row> training = read_csv(folder / "training.csv");
  if (training.empty()) return {};
  PublishedSet speed{"Zero Bubble (Qi et al. 2024), 1F1B", {}};
  PublishedSet memory{"Zero Bubble, peak memory of 1F1B", {}};
  zero_bubble(training, " 1F1B", 0, speed, memory);
  PublishedSet split_speed{"Zero Bubble (Qi et al. 2024), ZB-1p and ZB-2p", {}};
  PublishedSet split_memory{"Zero Bubble, peak memory of ZB-1p and ZB-2p", {}};
  zero_bubble(training, " ZB-1p", 1, split_speed, split_memory);
  zero_bubble(training, " ZB-2p", 2, split_speed, split_memory);
  return {vtrain("vTrain, many nodes", read_csv(folder / "vtrain_multi_node.csv"), true),
          vtrain("vTrain, one node", read_csv(folder / "vtrain_single_node.csv"), false),
          korthikanti(training),
          narayanan(training),
          speed,
          memory,
          split_speed,
          split_memory,
          activations(training)};
}

}  // namespace weft
