// The writers of the table in export_format.cpp, each in the source file of its name.
#pragma once

#include "io/export/export_sheet.hpp"

namespace weft {

void write_megatron_flags(ExportSheet& sheet);
void write_ddp_arguments(ExportSheet& sheet);
void write_fsdp2_groups(ExportSheet& sheet);
void write_deepspeed_config(ExportSheet& sheet);
void write_torchtitan_function(ExportSheet& sheet);
void write_torchtitan_config(ExportSheet& sheet);
void write_torch_pipeline_passes(ExportSheet& sheet);
void write_torch_pipeline_messages(ExportSheet& sheet);
void write_nccl_tuner(ExportSheet& sheet);
void write_megatron_nccl(ExportSheet& sheet);
void write_te_userbuffers(ExportSheet& sheet);
void write_mindspeed_flags(ExportSheet& sheet);
void write_msccl_programs(ExportSheet& sheet);
void write_chrome_timeline(ExportSheet& sheet);
void write_chakra_traces(ExportSheet& sheet);
void write_inductor_settings(ExportSheet& sheet);
void write_xla_costs(ExportSheet& sheet);
// The three of device_placement.cpp.
void write_rankfile(ExportSheet& sheet);
void write_hostfile(ExportSheet& sheet);
void write_cuda_visible_devices(ExportSheet& sheet);

}  // namespace weft
