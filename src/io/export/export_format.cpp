#include "io/export/export_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

constexpr ExportFormat kFormats[] = {
    {"megatron", "Megatron-LM", "flags in a shell array: layout, buckets, overlap, recomputation", "#",
     write_megatron_flags},
    {"ddp", "DistributedDataParallel", "Python: the arguments of PyTorch's DDP, with the sizes of its buckets", "#",
     write_ddp_arguments},
    {"fsdp2", "fully_shard", "Python: groups of fully_shard, prefetch lists, what is resharded", "#",
     write_fsdp2_groups},
    {"deepspeed", "DeepSpeed", "JSON: batches, ZeRO and its buckets", "", write_deepspeed_config},
    {"torchtitan", "TorchTitan", "Python: a function that sets degrees, batches, schedule and sharding", "#",
     write_torchtitan_function},
    {"torchtitan-toml", "TorchTitan", "TOML, which TorchTitan read until February 2026", "#", write_torchtitan_config},
    {"torch-pipeline", "torch.distributed.pipelining", "CSV of passes for PyTorch's schedules (compute_only)", "",
     write_torch_pipeline_passes},
    {"torch-pipeline-comms", "torch.distributed.pipelining", "the same with messages between ranks (compute_comms)", "",
     write_torch_pipeline_messages},
    {"nccl-tuner", "NCCL's example tuner plugin", "CSV: algorithm and channels by collective and size", "#",
     write_nccl_tuner},
    {"megatron-nccl", "--nccl-communicator-config-path", "YAML: CTAs and priorities of Megatron's process groups", "#",
     write_megatron_nccl},
    {"te-userbuffers", "--tp-comm-overlap-cfg", "YAML: how products overlap with tensor-parallel transfers", "#",
     write_te_userbuffers},
    {"mindspeed", "MindSpeed", "flags in a shell array, Megatron's with MindSpeed's own", "#", write_mindspeed_flags},
    {"msccl", "MSCCL", "XML of the programs that the plan's transfers name, a file each", "", write_msccl_programs,
     true},
    {"chrome", "a Chrome trace", "JSON: the predicted timeline, for Perfetto", "", write_chrome_timeline},
    {"chakra", "an execution trace", "Chakra's execution traces (protobuf), a file for each rank class", "",
     write_chakra_traces, true},
    {"inductor", "Inductor", "Python: settings of torch.compile for buckets and overlap", "#", write_inductor_settings},
    {"xla-pgle", "XLA's latency estimator", "text proto: how long operations take", "#", write_xla_costs},
    {"rankfile", "Open MPI's rankfile", "node and slot of every rank (--device-map)", "#", write_rankfile},
    {"hostfile", "a hostfile", "nodes in the order of their ranks (--device-map)", "#", write_hostfile},
    {"cuda-visible-devices", "CUDA_VISIBLE_DEVICES", "shell: the devices of a node's ranks (--device-map)", "#",
     write_cuda_visible_devices},
};

// A sentence as comment lines. NCCL's tuner plugin reads no more than 255 bytes of a line.
std::string comment_lines(std::string_view begin, const std::string& sentence) {
  constexpr std::size_t kColumns = 110;
  std::string text, line(begin);
  for (const std::string& word : split(sentence, ' ')) {
    if (line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = std::string(begin) + " ";
    }
    line += " " + word;
  }
  return text + line + "\n";
}

std::string comments(const Exported& exported, const ExportFormat& format, const Plan& plan) {
  std::string text = comment_lines(
      format.comment, fmt::format("weft export --to {}: {}, policy {}, tp {}, pp {}, dp {}", format.name,
                                  plan.model.name, plan.policy, plan.layout.tp, plan.layout.pp, plan.layout.dp));
  for (const std::string& sentence : exported.warnings) text += comment_lines(format.comment, "Note: " + sentence);
  for (const std::string& sentence : exported.left_out) text += comment_lines(format.comment, "Left out: " + sentence);
  return text;
}

// Frameworks have one copy of the parameters in a pipeline.
void refuse_two_directions(const Layout& layout, const ExportFormat& format) {
  constexpr std::string_view kOfPipelines[] = {
      "megatron", "mindspeed", "fsdp2", "torchtitan", "torchtitan-toml", "torch-pipeline", "torch-pipeline-comms"};
  if (layout.directions() == 1 || std::ranges::find(kOfPipelines, format.name) == std::end(kOfPipelines)) return;
  fail("--to {}: {} has one copy of the parameters in a pipeline, --schedule {} has two", format.name, format.target,
       name_of(layout.schedule));
}

}  // namespace

std::span<const ExportFormat> export_formats() {
  return kFormats;
}

const ExportFormat& export_format(const std::string& name) {
  std::vector<std::string> names;
  for (const ExportFormat& format : kFormats) {
    if (name == format.name) return format;
    names.emplace_back(format.name);
  }
  fail("--to '{}': there is no such format{}", name, suggestion(name, names));
}

Exported export_plan(const WholePlan& whole, const Profile& profile, const ExportFormat& format,
                     const std::vector<std::string>& launch_flags) {
  refuse_two_directions(whole.plan().layout, format);
  ExportSheet sheet(whole, profile, launch_flags);
  format.write(sheet);
  Exported exported = sheet.finish(std::string(format.target));
  if (format.comment.empty()) return exported;
  for (ExportedFile& file : exported.files) file.text = comments(exported, format, whole.plan()) + file.text;
  return exported;
}

}  // namespace weft
