// The configuration file that TorchTitan read until February 2026 (docs/export.md); today it has functions
// (torchtitan_function.cpp).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "io/export/export_writers.hpp"
#include "io/export/torchtitan_words.hpp"

namespace weft {
namespace {

class TorchTitanWriter {
 public:
  explicit TorchTitanWriter(ExportSheet& sheet) : sheet_(sheet), layout_(sheet.layout()) {}

  void write() {
    add_training();
    sheet_.line("\n[parallelism]");
    add_sharding();
    add_degrees();
    add_pipeline();
    add_recompute();
    sheet_.leaves_out(Feature::model, "name its model and flavor in [model]");
    sheet_.warn("TorchTitan read such files until February 2026; --to torchtitan writes what it takes since then");
  }

 private:
  template <class Value>
  void set(const char* key, const Value& value) {
    sheet_.line(fmt::format("{} = {}", key, value));
  }
  void set_text(const char* key, std::string_view value) { set(key, fmt::format("\"{}\"", value)); }

  void add_training() {
    sheet_.line("[training]");
    // A pipeline is given all micro-batches of a step at once; without one, gradients are accumulated over calls.
    set("local_batch_size", layout_.pp > 1 ? layout_.micro_batch * layout_.micro_batches() : layout_.micro_batch);
    set("global_batch_size", layout_.global_batch);
    set("seq_len", layout_.seq);
    set("max_norm", layout_.clip_grad > 0 ? fmt::format("{:.6g}", layout_.clip_grad) : "inf");
    sheet_.carries({Feature::batches, Feature::gradient_clipping});
    if (layout_.precision == ElementType::fp16) {
      sheet_.leaves_out(Feature::precision, "TorchTitan has bfloat16 and float32");
    } else {
      set_text("mixed_precision_param", layout_.precision == ElementType::bf16 ? "bfloat16" : "float32");
      sheet_.carries({Feature::precision});
    }
    if (layout_.grad_dtype == ElementType::fp32) {
      set_text("mixed_precision_reduce", "float32");
      sheet_.carries({Feature::gradient_type});
    } else {
      sheet_.leaves_out(Feature::gradient_type, "TorchTitan reduces in float32");
    }
  }

  void add_sharding() {
    const std::int64_t shards = torchtitan_shards(layout_);
    set("data_parallel_replicate_degree", layout_.dp / shards);
    set("data_parallel_shard_degree", shards);
    sheet_.carries({Feature::data_parallel, Feature::reductions_beside_compute, Feature::queues, Feature::waits});
    if (layout_.shards() % layout_.cp == 0) sheet_.carries({Feature::zero_shards});
    if (layout_.zero == 0) {
      sheet_.leaves_out(Feature::gradient_buckets, "TorchTitan's replicas have buckets of 100 MiB");
      return;
    }
    set_text("fsdp_reshard_after_forward", layout_.zero == 3 ? "always" : "never");
    sheet_.carries({Feature::gathers_beside_compute});
    if (layout_.zero == 1) {
      sheet_.leaves_out(Feature::zero, "the nearest is written, which is --zero 2: gradients are sharded too");
      sheet_.leaves_out(Feature::gradient_buckets, "fully_shard has a bucket for each layer");
      return;
    }
    sheet_.carries({Feature::zero, Feature::gradient_buckets});
    if (sheet_.facts().prefetch == 1) {
      sheet_.carries({Feature::prefetch});
    } else {
      sheet_.leaves_out(Feature::prefetch, "TorchTitan gathers one layer ahead; --to fsdp2 says more");
    }
  }

  void add_degrees() {
    set("tensor_parallel_degree", layout_.tp);
    set("context_parallel_degree", layout_.cp);
    sheet_.carries({Feature::tensor_parallel, Feature::context_parallel});
    if (layout_.tp > 1 && layout_.sequence_parallel) sheet_.carries({Feature::sequence_parallel});
    if (layout_.tp > 1 && !layout_.sequence_parallel) {
      sheet_.warn("TorchTitan splits norms and residuals over tensor-parallel ranks, which the plan does not");
    }
    if (sheet_.facts().tensor_parallel_parts) {
      set("enable_async_tensor_parallel", "true");
      sheet_.leaves_out(Feature::tensor_parallel_parts,
                        "async tensor parallelism is turned on and has parts of its own");
      sheet_.warn("enable_async_tensor_parallel needs compile.enable = true");
    }
    if (!sheet_.model().experts) return;
    set("expert_parallel_degree", layout_.ep);
    set("expert_tensor_parallel_degree", layout_.etp);
    sheet_.carries({Feature::expert_parallel, Feature::expert_tensor_parallel});
  }

  void add_pipeline() {
    set("pipeline_parallel_degree", layout_.pp);
    if (layout_.pp == 1) return;
    set("pipeline_parallel_microbatch_size", layout_.micro_batch);
    const std::optional<std::string_view> schedule = torchtitan_schedule(layout_);
    if (schedule) {
      set_text("pipeline_parallel_schedule", *schedule);
      sheet_.carries({Feature::schedule});
    } else {
      sheet_.leaves_out(Feature::schedule, "--to torch-pipeline writes a file for pipeline_parallel_schedule_csv");
    }
    set("module_fqns_per_model_part",
        fmt::format("[{}]", fmt::join(torchtitan_modules(layout_, sheet_.model(), "output"), ", ")));
    sheet_.carries({Feature::pipeline, Feature::model_chunks, Feature::stage_layers, Feature::messages_beside_compute});
    sheet_.leaves_out(Feature::woven_passes, "--to torch-pipeline writes a file for pipeline_parallel_schedule_csv");
  }

  void add_recompute() {
    sheet_.line("\n[activation_checkpoint]");
    set_text("mode", layout_.recompute == Recompute::none        ? "none"
                     : layout_.recompute == Recompute::selective ? "selective"
                                                                 : "full");
    if (!layout_.recompute_layers.empty()) {
      sheet_.leaves_out(Feature::recompute, "TorchTitan recomputes all layers");
    } else if (layout_.recompute == Recompute::full) {
      sheet_.carries({Feature::recompute});
    } else {
      sheet_.leaves_out(Feature::recompute, "TorchTitan chooses other operations to keep");
    }
  }

  ExportSheet& sheet_;
  const Layout& layout_;
};

}  // namespace

void write_torchtitan_config(ExportSheet& sheet) {
  TorchTitanWriter(sheet).write();
}

}  // namespace weft
