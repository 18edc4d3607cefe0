// DeepSpeed's configuration file (docs/export.md).
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json_text.hpp"
#include "io/export/export_writers.hpp"
#include "io/export/gradient_buckets.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

// DeepSpeed reduces what is there before a gradient that would carry the bucket beyond its size. Sizes of at least the
// largest bucket, and of less than any bucket with the next gradient, cut alike.
struct DeepSpeedBucket {
  std::int64_t elements = 0;
  bool cuts_alike = true;
};

DeepSpeedBucket bucket_size(const Plan& plan) {
  DeepSpeedBucket size;
  std::int64_t below = std::numeric_limits<std::int64_t>::max(), before = -1;
  for (const GradientBucket& bucket : gradient_buckets(plan, 0)) {
    if (before >= 0) below = std::min(below, before + bucket.parameters.front());
    before = std::accumulate(bucket.parameters.begin(), bucket.parameters.end(), std::int64_t{0});
    size.elements = std::max(size.elements, before);
  }
  size.cuts_alike = size.elements < below;
  return size;
}

// The parameters of the largest unit that ZeRO 3 gathers.
std::int64_t largest_unit(const Plan& plan) {
  std::int64_t largest = 0;
  for (const Operation& op : plan.graph.operations) {
    if (op.role != Role::param_gather || op.layer < 0) continue;
    std::int64_t elements = 0;
    for (const Write& write : op.writes) elements += plan.graph.value(write.value).elements();
    largest = std::max(largest, elements);
  }
  return largest;
}

void add_stage_3(ExportSheet& sheet, Json& zero) {
  const std::int64_t unit = largest_unit(sheet.plan()), prefetch = sheet.facts().prefetch;
  zero["stage3_prefetch_bucket_size"] = prefetch * unit;
  zero["stage3_max_live_parameters"] = (prefetch + 1) * unit;
  zero["stage3_max_reuse_distance"] = 0;           // backward gathers again
  zero["stage3_param_persistence_threshold"] = 0;  // small parameters are gathered too
  sheet.carries({Feature::prefetch, Feature::gathers_beside_compute});
  // DeepSpeed's own are in eight bits for weights and in four for gradients.
  if (sheet.layout().compress_weights == CompressionFormat::int8) {
    zero["zero_quantized_weights"] = true;
    sheet.carries({Feature::weight_compression});
  }
  if (sheet.layout().compress.format == CompressionFormat::int4) {
    zero["zero_quantized_gradients"] = true;
    sheet.carries({Feature::gradient_compression});
  }
  if (sheet.layout().zero_secondary > 0) {
    zero["zero_hpz_partition_size"] = sheet.layout().zero_secondary;
    sheet.carries({Feature::zero_secondary});
  }
  if (sheet.layout().has_shard_groups()) {
    zero["mics_shard_size"] = sheet.layout().shards();
    sheet.carries({Feature::zero_shards});
    sheet.warn("mics_shard_size needs deepspeed.zero.MiCS_Init where the model is made");
  }
}

Json zero_section(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  Json zero;
  zero["stage"] = layout.zero;
  sheet.carries({Feature::zero});
  const bool beside = sheet.facts().reductions_beside_compute;
  if (layout.zero == 0) {
    sheet.leaves_out(Feature::reductions_beside_compute,
                     "DeepSpeed reduces after backward at stage 0; --zero 1 overlaps");
    sheet.leaves_out(Feature::gradient_buckets, "DeepSpeed reduces after backward at stage 0");
    return zero;
  }
  zero["overlap_comm"] = beside;
  zero["contiguous_gradients"] = true;
  zero["reduce_scatter"] = true;
  const DeepSpeedBucket bucket = bucket_size(sheet.plan());
  zero["reduce_bucket_size"] = bucket.elements;
  sheet.carries({Feature::reductions_beside_compute, Feature::gradient_buckets, Feature::queues, Feature::waits});
  if (!bucket.cuts_alike) {
    sheet.leaves_out(Feature::gradient_buckets, "no one reduce_bucket_size cuts them alike; the largest is written");
  }
  if (layout.zero == 3) {
    add_stage_3(sheet, zero);
  } else {
    zero["allgather_partitions"] = true;
    zero["allgather_bucket_size"] = bucket.elements;
    sheet.leaves_out(Feature::gathers_beside_compute, "DeepSpeed gathers after the update, before the next step");
  }
  return zero;
}

void add_numerics(ExportSheet& sheet, Json& config) {
  const Layout& layout = sheet.layout();
  config["gradient_clipping"] = layout.clip_grad;
  if (layout.precision != ElementType::fp32) {
    config[layout.precision == ElementType::bf16 ? "bf16" : "fp16"] = Json{{"enabled", true}};
  }
  config["communication_data_type"] = std::string(name_of(layout.grad_dtype));
  sheet.carries({Feature::precision, Feature::gradient_type, Feature::gradient_clipping});
}

}  // namespace

void write_deepspeed_config(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  Json config;
  config["train_batch_size"] = layout.global_batch;
  config["train_micro_batch_size_per_gpu"] = layout.micro_batch;
  config["gradient_accumulation_steps"] = layout.micro_batches();
  sheet.carries({Feature::batches, Feature::data_parallel});
  sheet.warn(fmt::format("sequences are of {} tokens in the plan; the program says how long they are", layout.seq));
  add_numerics(sheet, config);
  config["zero_optimization"] = zero_section(sheet);
  sheet.leaves_out(Feature::pipeline, "PipelineModule(num_stages=...) says it in the program");
  sheet.leaves_out(Feature::recompute, "the model's program calls deepspeed.checkpointing");
  if (layout.pp > 1 && layout.zero > 1) {
    sheet.warn("DeepSpeed's PipelineModule works with ZeRO stages 0 and 1 only");
  }
  sheet.line(json_text(config, 2));
}

}  // namespace weft
