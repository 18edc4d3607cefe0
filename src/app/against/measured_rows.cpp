#include "app/against/measured_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/files.hpp"
#include "app/framework_inputs.hpp"
#include "app/inputs.hpp"
#include "app/network_inputs.hpp"
#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

// What a column says in the words of a flag; columns that are named like a flag say it themselves.
struct ColumnWords {
  std::string_view column, cell, flag, value;
};
constexpr std::array kColumnWords{
    ColumnWords{"sharding", "FULL_SHARD", "zero", "3"},
    ColumnWords{"sharding", "SHARD_GRAD_OP", "zero", "2"},
    ColumnWords{"activation_checkpointing", "true", "recompute", "full"},
    ColumnWords{"activation_checkpointing", "false", "recompute", "none"},
    ColumnWords{"mixed_precision", "PURE", "grad-dtype", "bf16"},
    ColumnWords{"mixed_precision", "DEFAULT", "grad-dtype", "fp32"},
    ColumnWords{"precision", "amp_bf16", "precision", "bf16"},
    ColumnWords{"precision", "amp_fp8", "products", "fp8"},
    ColumnWords{"precision", "fp8", "products", "fp8"},
    ColumnWords{"precision", "fp4", "products", "fp4"},
    ColumnWords{"benchmark", "gpt3", "model", "gpt3-175b"},
    ColumnWords{"benchmark", "gpt3", "vocab", "50257"},
    ColumnWords{"benchmark", "llama31_405b", "model", "llama3-405b"},
    ColumnWords{"benchmark", "llama31_405b", "vocab", "32000"},
    ColumnWords{"distributed_optimizer", "true", "zero", "1"},
    ColumnWords{"rank_order", "tp-cp-dp-pp", "mesh-order", "tp,cp,dp,pp"},
    ColumnWords{"rank_order", "tp-cp-pp-dp", "mesh-order", "tp,cp,pp,dp"},
    ColumnWords{"cuda_graph", "no", "cuda-graphs", "none"},
    ColumnWords{"cuda_graph", "layer", "cuda-graphs", "layer"},
    ColumnWords{"cuda_graph", "full", "cuda-graphs", "full"},
};
// The machine that a GPU is found in, and how many of its GPUs share fast links where a job does not use all.
struct GpuMachine {
  std::string_view gpu, machine;
  std::string_view keys = "";
  std::int64_t devices = 8;
};
constexpr std::array kGpuMachines{
    GpuMachine{"a100-40", "dgx-a100", ",device=a100-40"},
    GpuMachine{"a100", "dgx-a100"},
    GpuMachine{"h100", "dgx-h100"},
    GpuMachine{"h200", "dgx-h200"},
    GpuMachine{"b200", "dgx-b200"},
    GpuMachine{"gb200", "gb200-nvl72", "", 64},
    GpuMachine{"gb300", "gb300-nvl72", "", 64},
};
// Columns of a table that mean something else than the flag of their name.
constexpr std::array kOtherColumns{"model", "policy", "cluster", "memory", "out", "where", "against", "from", "links"};

struct Condition {
  std::string column, cell;
};
std::vector<Condition> read_conditions(const Flags& flags) {
  std::vector<Condition> conditions;
  const auto text = flags.text("where");
  if (!text) return conditions;
  for (const std::string& item : split(*text, ',')) {
    const auto equals = item.find('=');
    if (equals == std::string::npos || equals == 0) fail("--where '{}': is not COLUMN=VALUE", item);
    conditions.push_back({item.substr(0, equals), item.substr(equals + 1)});
  }
  return conditions;
}

constexpr std::int64_t kDevicesPerNode = 8;

class RowReader {
 public:
  RowReader(const Flags& typed, const std::string& file, const CsvRow& row) : file_(file), row_(row), flags_(typed) {}

  MeasuredRow read() {
    for (const auto& [column, cell] : row_.cells) read_cell(column, cell);
    read_cluster();
    apply_framework_defaults(flags_);
    MeasuredRow run{
        row_.line,   flags_, policy(), number("step_s"), number("mem_reserved_gb"), row_.text("status") == "oom",
        read_links()};
    if (!run.step_s && !run.out_of_memory && !run.reserved_gib) {
      fail("{}: line {}: says neither 'step_s' nor 'mem_reserved_gb' nor status 'oom'", file_, row_.line);
    }
    return run;
  }

 private:
  // Tables that say what a run overlapped have a column for each of Megatron's flags; where a cell is empty the run did
  // not set the flag.
  std::string policy() const {
    if (flags_.given("policy") || !row_.cells.contains("overlap_grad_reduce")) return framework_policy(flags_);
    if (row_.text("overlap_grad_reduce") != "true") return "megatron-dist";
    return row_.text("overlap_param_gather") == "true" ? "megatron-param" : "megatron-grad";
  }

  std::string where(const std::string& column) const {
    return fmt::format("{}: line {}: column '{}'", file_, row_.line, column);
  }

  void read_cell(const std::string& column, const std::string& cell) {
    if (cell.empty()) return;
    const auto set = [&](const std::string& flag, std::string_view value) {
      if (!flags_.typed(flag)) flags_.set(flag, std::string(value), where(column));
    };
    bool said = false;
    for (const ColumnWords& words : kColumnWords) {
      if (words.column != column || words.cell != cell) continue;
      set(std::string(words.flag), words.value);
      said = true;
    }
    std::string flag = column;
    std::replace(flag.begin(), flag.end(), '_', '-');
    const bool means_other = std::find(kOtherColumns.begin(), kOtherColumns.end(), column) != kOtherColumns.end();
    if (!said && !means_other && flags_.declares(flag)) set(flag, cell);
  }

  // The typed cluster, or the machine of the row's GPU, with as many nodes as the row says.
  void read_cluster() {
    const std::string nodes = row_.text("nodes"), gpus = row_.text("gpus"), gpu = row_.text("gpu");
    if (nodes.empty() && gpus.empty()) return;
    const auto known = std::find_if(kGpuMachines.begin(), kGpuMachines.end(),
                                    [&](const GpuMachine& one) { return gpu.starts_with(one.gpu); });
    const std::int64_t per_node = known == kGpuMachines.end() ? 8 : known->devices;
    const std::int64_t devices =
        gpus.empty() ? per_node * parse_integer(nodes, where("nodes")) : parse_integer(gpus, where("gpus"));
    std::string machine = flags_.typed("cluster") ? *flags_.text("cluster") : "";
    std::string keys;
    if (const auto comma = machine.find(','); comma != std::string::npos) keys = machine.substr(comma);
    machine = machine.substr(0, machine.find_first_of(":,"));
    if (machine.empty() && known != kGpuMachines.end()) machine = known->machine;
    if (machine.empty()) fail("{}: rows do not name the machine; give --cluster", file_);
    if (known != kGpuMachines.end()) keys += known->keys;
    const std::int64_t count = std::max<std::int64_t>(1, devices / per_node);
    const std::int64_t in_node = std::min(devices, per_node);
    if (in_node != 8) keys += fmt::format(",gpus={}", in_node);
    if (const auto rate = number("nic_gbps_per_gpu")) {
      keys += fmt::format(",nic={}Gb/s", *rate * static_cast<double>(in_node));
    }
    flags_.set("cluster", fmt::format("{}:{}{}", machine, count, keys));
  }

  // All-reduces of a buffer of 1 GiB over all devices, and over those of a node.
  std::vector<MeasuredCollective> read_links() const {
    if (!flags_.declares("links") || flags_.text("links") != kLinksOfColumns) return {};
    const auto devices = Cluster(weft::read_cluster(flags_)).device_count();
    std::vector<MeasuredCollective> links;
    const auto add = [&](const char* column, std::int64_t members) {
      const auto rate = number(column);
      if (rate && members > 1) links.push_back({Collective::all_reduce, members, 0, {{Bytes{1 << 30}, {*rate * 1e9}}}});
    };
    add("allreduce_gbs", devices);
    if (devices > kDevicesPerNode) add("allreduce_intra_gbs", kDevicesPerNode);
    if (links.empty()) fail("{}: line {}: --links columns: says no 'allreduce_gbs'", file_, row_.line);
    return links;
  }

  std::optional<double> number(const std::string& column) const {
    const std::string cell = row_.text(column);
    if (cell.empty()) return std::nullopt;
    std::size_t read = 0;
    double value = 0;
    try {
      value = std::stod(cell, &read);
    } catch (const std::exception&) {
      read = 0;
    }
    if (read != cell.size() || !(value > 0)) fail("{}: '{}' is no number above zero", where(column), cell);
    return value;
  }

  const std::string& file_;
  const CsvRow& row_;
  Flags flags_;
};

}  // namespace

std::vector<MeasuredRow> read_measured_runs(const Flags& flags, const std::string& file) {
  const std::vector<Condition> conditions = read_conditions(flags);
  const std::vector<CsvRow> rows = read_csv(read_text_file(file), file);
  if (rows.empty()) fail("{}: has no rows", file);
  for (const Condition& condition : conditions) {
    if (!rows.front().cells.contains(condition.column)) {
      fail("--where {}={}: {} has no column '{}'", condition.column, condition.cell, file, condition.column);
    }
  }
  std::vector<MeasuredRow> runs;
  for (const CsvRow& row : rows) {
    const bool meant = std::all_of(conditions.begin(), conditions.end(), [&](const Condition& condition) {
      return row.text(condition.column) == condition.cell;
    });
    if (meant) runs.push_back(RowReader(flags, file, row).read());
  }
  if (runs.empty()) fail("--where {}: no row of {} is so", *flags.text("where"), file);
  return runs;
}

}  // namespace weft
