// A Python function that sets what a plan says on one of TorchTitan's configurations (docs/export.md). Its names are
// those of torchtitan/config/configs.py of August 2026; before February 2026 TorchTitan read TOML
// (torchtitan_config.cpp).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/export/export_writers.hpp"
#include "io/export/torchtitan_words.hpp"

namespace weft {
namespace {

class TorchTitanFunction {
 public:
  explicit TorchTitanFunction(ExportSheet& sheet) : sheet_(sheet), layout_(sheet.layout()) {}

  void write() {
    sheet_.line("\"\"\"In a config_registry.py: def my_run(): return apply(llama3_8b())\"\"\"");
    sheet_.line("from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC\n\n");
    sheet_.line("def apply(config):");
    sheet_.line("    \"\"\"Sets what the plan says on a Trainer.Config and returns it.\"\"\"");
    add_training();
    add_sharding();
    add_degrees();
    add_pipeline();
    add_recompute();
    sheet_.line("    return config");
    sheet_.leaves_out(Feature::model, "the configuration that apply() is given names the model in model_spec");
    sheet_.warn("TorchTitan read TOML until February 2026: --to torchtitan-toml writes that");
  }

 private:
  template <class Value>
  void set(std::string_view key, const Value& value) {
    sheet_.line(fmt::format("    config.{} = {}", key, value));
  }
  void set_text(std::string_view key, std::string_view value) { set(key, fmt::format("\"{}\"", value)); }

  // A step's batches are numbers of tokens.
  void add_training() {
    set("training.num_tokens_per_microbatch_per_dp_rank", layout_.micro_batch * layout_.seq);
    set("training.num_tokens_per_train_step", layout_.global_batch * layout_.seq);
    set("training.max_context_length", layout_.seq);
    set("training.max_norm",
        layout_.clip_grad > 0 ? fmt::format("{:.6g}", layout_.clip_grad) : std::string("float(\"inf\")"));
    sheet_.carries({Feature::batches, Feature::gradient_clipping});
    if (layout_.precision == ElementType::fp16) {
      sheet_.leaves_out(Feature::precision, "TorchTitan has bfloat16 and float32");
    } else {
      set_text("training.mixed_precision_param", layout_.precision == ElementType::bf16 ? "bfloat16" : "float32");
      sheet_.carries({Feature::precision});
    }
    if (layout_.grad_dtype == ElementType::fp32) {
      set_text("training.mixed_precision_reduce", "float32");
      sheet_.carries({Feature::gradient_type});
    } else {
      sheet_.leaves_out(Feature::gradient_type, "TorchTitan reduces in float32");
    }
  }

  void add_sharding() {
    const std::int64_t shards = torchtitan_shards(layout_);
    set("parallelism.data_parallel_replicate_degree", layout_.dp / shards);
    set("parallelism.data_parallel_shard_degree", shards);
    sheet_.carries({Feature::data_parallel, Feature::reductions_beside_compute, Feature::queues, Feature::waits});
    if (layout_.shards() % layout_.cp == 0) sheet_.carries({Feature::zero_shards});
    if (layout_.zero == 0) {
      sheet_.leaves_out(Feature::gradient_buckets, "TorchTitan's replicas have buckets of 100 MiB");
      return;
    }
    set_text("parallelism.fsdp_reshard_after_forward", layout_.zero == 3 ? "always" : "never");
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
    set("parallelism.tensor_parallel_degree", layout_.tp);
    set("parallelism.enable_sequence_parallel", layout_.sequence_parallel ? "True" : "False");
    set("parallelism.context_parallel_degree", layout_.cp);
    sheet_.carries({Feature::tensor_parallel, Feature::context_parallel, Feature::sequence_parallel});
    if (sheet_.facts().tensor_parallel_parts) {
      set("compile.enable", "True");
      set("compile.enable_async_tensor_parallel", "True");
      sheet_.leaves_out(Feature::tensor_parallel_parts,
                        "async tensor parallelism is turned on and has parts of its own");
    }
    if (!sheet_.model().experts) return;
    set("parallelism.expert_parallel_degree", layout_.ep);
    sheet_.carries({Feature::expert_parallel});
    if (layout_.etp == 1) {
      sheet_.carries({Feature::expert_tensor_parallel});
    } else {
      sheet_.leaves_out(Feature::expert_tensor_parallel, "TorchTitan's experts are whole on their rank");
    }
  }

  void add_pipeline() {
    set("parallelism.pipeline_parallel_degree", layout_.pp);
    if (layout_.pp == 1) return;
    set("parallelism.num_pp_microbatches", layout_.micro_batches());
    if (const auto schedule = torchtitan_schedule(layout_)) {
      set_text("parallelism.pipeline_parallel_schedule", *schedule);
      sheet_.carries({Feature::schedule});
    } else {
      sheet_.leaves_out(Feature::schedule, "--to torch-pipeline writes a file for pipeline_parallel_schedule_csv");
    }
    sheet_.line("    config.parallelism.module_fqns_per_model_part = [");
    for (const std::string& chunk : torchtitan_modules(layout_, sheet_.model(), "lm_head")) {
      sheet_.line(fmt::format("        {},", chunk));
    }
    sheet_.line("    ]");
    sheet_.carries({Feature::pipeline, Feature::model_chunks, Feature::stage_layers, Feature::messages_beside_compute});
    sheet_.leaves_out(Feature::woven_passes, "--to torch-pipeline writes a file for pipeline_parallel_schedule_csv");
  }

  void add_recompute() {
    set("activation_checkpoint", layout_.recompute == Recompute::none        ? "None"
                                 : layout_.recompute == Recompute::selective ? "SelectiveAC.Config()"
                                                                             : "FullAC.Config()");
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

void write_torchtitan_function(ExportSheet& sheet) {
  TorchTitanFunction(sheet).write();
}

}  // namespace weft
