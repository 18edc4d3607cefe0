// The flags of Megatron-LM and of MindSpeed, which is Megatron-LM on Ascend (docs/export.md). io/megatron reads them
// back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/export/export_writers.hpp"
#include "io/export/gradient_buckets.hpp"
#include "io/export/megatron_model_flags.hpp"

namespace weft {
namespace {

// Words of a flag as the shell takes them: a plan file may come from anywhere, and nothing in it is to be run.
std::string shell_words(const std::string& flag) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:=/+-";
  std::vector<std::string> words;
  for (const std::string& word : split(flag, ' ')) {
    if (word.find_first_not_of(kPlain) == std::string::npos) {
      words.push_back(word);
      continue;
    }
    std::string quoted;
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    words.push_back("'" + quoted + "'");
  }
  return fmt::format("{}", fmt::join(words, " "));
}

enum class Dialect : std::uint8_t { megatron, mindspeed };

class MegatronWriter {
 public:
  MegatronWriter(ExportSheet& sheet, Dialect dialect)
      : sheet_(sheet), layout_(sheet.layout()), mindspeed_(dialect == Dialect::mindspeed) {}

  void write() {
    if (layout_.tp > 1 || layout_.cp > 1) sheet_.line("export CUDA_DEVICE_MAX_CONNECTIONS=1");
    sheet_.line(mindspeed_ ? "MINDSPEED_ARGS=(" : "MEGATRON_ARGS=(");
    for (const std::string& flag : megatron_model_flags(sheet_.model(), has_dropout(sheet_.model(), layout_)))
      add(flag);
    add_launch_flags();
    sheet_.carries({Feature::model, Feature::dropout});
    add_degrees();
    add_pipeline();
    add_experts();
    add_numerics();
    add_sharding();
    add_data_parallel_overlap();
    add_layer_overlap();
    sheet_.line(")");
    warn();
  }

 private:
  void add(std::string_view flag) { sheet_.line(fmt::format("  {}", flag)); }
  template <class Value>
  void add(const char* flag, const Value& value) {
    add(fmt::format("{} {}", flag, value));
  }

  // What the script that the plan is made of says of the model, and what nobody said.
  void add_launch_flags() {
    for (const std::string& flag : sheet_.launch_flags()) add(shell_words(flag));
    const auto said = [&](std::string_view name) {
      return std::ranges::any_of(sheet_.launch_flags(),
                                 [&](const std::string& flag) { return flag.starts_with(fmt::format("{} ", name)); });
    };
    std::vector<std::string> unsaid;
    if (sheet_.model().positions == Positions::rotary && !said("--rotary-base"))
      unsaid.emplace_back("--rotary-base 10000");
    if (!said("--norm-epsilon") && !said("--layernorm-epsilon")) unsaid.emplace_back("--norm-epsilon 1e-5");
    if (!said("--init-method-std")) unsaid.emplace_back("--init-method-std 0.02");
    if (unsaid.empty()) return;
    sheet_.warn(fmt::format(
        "no time depends on these numbers, so the plan has none and Megatron-LM's defaults stand: {}; give the model's",
        fmt::join(unsaid, ", ")));
  }

  void add_degrees() {
    add("--micro-batch-size", layout_.micro_batch);
    add("--global-batch-size", layout_.global_batch);
    add("--seq-length", layout_.seq);
    if (layout_.tp > 1) add("--tensor-model-parallel-size", layout_.tp);
    if (layout_.pp > 1) add("--pipeline-model-parallel-size", layout_.pp);
    if (layout_.cp > 1) add("--context-parallel-size", layout_.cp);
    if (layout_.sequence_parallel) add("--sequence-parallel");
    sheet_.carries({Feature::batches, Feature::tensor_parallel, Feature::pipeline, Feature::context_parallel,
                    Feature::data_parallel, Feature::sequence_parallel});
    const std::vector<Axis> pipeline_inside{Axis::tp, Axis::cp, Axis::pp, Axis::dp};
    if (layout_.mesh_order == pipeline_inside) {
      add("--use-tp-pp-dp-mapping");
      sheet_.carries({Feature::mesh_order});
    } else {
      sheet_.leaves_out(Feature::mesh_order,
                        "Megatron-LM has tp,cp,dp,pp and, with --use-tp-pp-dp-mapping, tp,cp,pp,dp");
    }
  }

  // Megatron's own default splits layers evenly; Weft's is even only where layers divide.
  bool splits_evenly(const std::vector<std::int64_t>& layers) const {
    return std::all_of(layers.begin(), layers.end(), [&](std::int64_t count) { return count == layers.front(); });
  }

  void add_pipeline() {
    if (layout_.pp == 1) return;
    const std::vector<std::int64_t> layers = layers_per_chunk(layout_, sheet_.model());
    if (splits_evenly(layers)) {
      if (layout_.vpp > 1) add("--num-virtual-stages-per-pipeline-rank", layout_.vpp);
    } else {  // its stages say how many model chunks there are
      std::string text = "E";
      for (std::size_t i = 0; i < layers.size(); ++i) text += fmt::format("{}t*{}", i == 0 ? "" : "|", layers[i]);
      add(fmt::format("--pipeline-model-parallel-layout '{}L'", text));
    }
    sheet_.carries({Feature::model_chunks, Feature::stage_layers});
    if (layout_.schedule == PipelineSchedule::interleaved) {
      add("--microbatch-group-size-per-virtual-pipeline-stage", layout_.pp);
    }
    const bool is_one_f_one_b = layout_.schedule == PipelineSchedule::one_f_one_b && layout_.warm_up_depth == 0;
    if (is_one_f_one_b || layout_.schedule == PipelineSchedule::interleaved) {
      sheet_.carries({Feature::schedule});
    } else {
      sheet_.leaves_out(Feature::schedule, layout_.vpp > 1 ? "Megatron-LM runs the interleaved schedule instead"
                                                           : "Megatron-LM runs 1F1B instead");
    }
    // Megatron waits for the messages of 1F1B and posts those of the interleaved schedule ahead.
    const bool ahead = sheet_.facts().messages_beside_compute;
    if (layout_.vpp > 1 && !ahead) add("--no-overlap-p2p-communication");
    if (layout_.vpp > 1 || !ahead) {
      sheet_.carries({Feature::messages_beside_compute});
    } else {
      sheet_.leaves_out(Feature::messages_beside_compute,
                        "Megatron-LM posts messages ahead with several model chunks only");
    }
  }

  void add_experts() {
    if (!sheet_.model().experts) return;
    if (sheet_.model().experts->capacity_factor > 0 && sheet_.model().experts->gate_order == GateOrder::gshard) {
      sheet_.warn("Megatron-LM has no token drop policy gshard: position is written");
    }
    if (layout_.ep > 1) add("--expert-model-parallel-size", layout_.ep);
    if (layout_.etp > 1 || layout_.tp > 1) add("--expert-tensor-parallel-size", layout_.etp);
    sheet_.carries({Feature::expert_parallel, Feature::expert_tensor_parallel});
    if (layout_.ep == 1) return;
    if (layout_.ep_forwarding) {
      add("--moe-token-dispatcher-type flex");
      add("--moe-flex-dispatcher-backend deepep");
    } else {
      add(layout_.expert_exchange == ExpertExchange::gathered ? "--moe-token-dispatcher-type allgather"
                                                              : "--moe-token-dispatcher-type alltoall");
    }
    sheet_.carries({Feature::expert_forwarding, Feature::expert_exchange});
    const bool padded = layout_.expert_exchange == ExpertExchange::padded;
    if (padded && sheet_.model().experts->capacity_factor > 0) {
      add("--moe-pad-expert-input-to-capacity");
    } else if (padded && !layout_.ep_forwarding) {
      sheet_.leaves_out(Feature::expert_exchange,
                        "without a capacity Megatron-LM sends only the tokens that are there");
    }
    sheet_.leaves_out(Feature::expert_dispatch_fp8, "Megatron-LM takes that from its fp8 recipe");
  }

  void add_numerics() {
    const bool bf16 = layout_.precision == ElementType::bf16, fp16 = layout_.precision == ElementType::fp16;
    if (bf16) add("--bf16");
    if (fp16) add("--fp16");
    if (layout_.products == ProductFormat::fp8) add("--fp8-format hybrid");
    if (layout_.products == ProductFormat::fp4) add("--fp4-format e2m1");
    if (layout_.fp8_param_gather) add("--fp8-param-gather");
    sheet_.carries({Feature::precision, Feature::low_precision_products, Feature::gradient_type,
                    Feature::gradient_clipping, Feature::attention_kernel});
    const ElementType grads = layout_.grad_dtype;
    if (grads == ElementType::fp32 && (bf16 || fp16)) add("--accumulate-allreduce-grads-in-fp32");
    if (grads == ElementType::bf16) add("--grad-reduce-in-bf16");
    if (grads == ElementType::fp16 && !fp16)
      sheet_.leaves_out(Feature::gradient_type, "Megatron-LM reduces in fp32 or bf16");
    add("--clip-grad", layout_.clip_grad);
    add(layout_.attention == AttentionKernel::flash ? "--attention-backend flash" : "--attention-backend unfused");
    add_recompute();
  }

  void add_recompute() {
    sheet_.carries({Feature::recompute});
    if (layout_.recompute == Recompute::selective) add("--recompute-granularity selective");
    if (!recomputes_layers(layout_.recompute)) return;
    add("--recompute-granularity full");
    std::vector<std::string> differences = add_recomputed_layers();
    if (layout_.recompute == Recompute::local) differences.emplace_back("Megatron-LM recomputes the all-to-alls too");
    if (!differences.empty()) sheet_.leaves_out(Feature::recompute, fmt::format("{}", fmt::join(differences, "; ")));
  }

  // Returns how what Megatron-LM does differs: it recomputes as many layers of every chunk.
  std::vector<std::string> add_recomputed_layers() {
    const std::vector<std::int64_t>& layers = layout_.recompute_layers;
    if (layers.empty()) {
      add("--recompute-method uniform");
      add("--recompute-num-layers 1");
      return {};
    }
    const auto [least, most] = std::ranges::minmax(layers);
    add("--recompute-method block");
    add("--recompute-num-layers", most);
    if (least == most) return {};
    return {fmt::format("Megatron-LM recomputes as many layers of every chunk: {}, the most that one needs", most)};
  }

  void add_sharding() {
    sheet_.carries({Feature::zero});
    if (layout_.zero == 1) add("--use-distributed-optimizer");
    if (layout_.zero >= 2 && mindspeed_) {
      add("--use-torch-fsdp2");
      sheet_.leaves_out(Feature::prefetch, "fully_shard issues the next gather early by itself");
      if (layout_.zero == 2) sheet_.leaves_out(Feature::zero, "the nearest is written: parameters are sharded too");
    } else if (layout_.zero >= 2) {
      add("--use-distributed-optimizer");
      add("--use-megatron-fsdp");
      add("--data-parallel-sharding-strategy", layout_.zero == 2 ? "optim_grads" : "optim_grads_params");
      sheet_.leaves_out(Feature::prefetch, "Megatron-FSDP gathers ahead by a number of parameters of its own");
    }
    if (layout_.zero > 0 && layout_.has_shard_groups()) {
      add("--num-distributed-optimizer-instances", layout_.shard_replicas());
      sheet_.carries({Feature::zero_shards});
    }
  }

  void add_data_parallel_overlap() {
    const TransferFacts& facts = sheet_.facts();
    if (facts.reductions_beside_compute) {
      add("--overlap-grad-reduce");
      sheet_.carries({Feature::reductions_beside_compute});
    }
    if (facts.gathers_beside_compute && facts.reductions_beside_compute && layout_.zero >= 1) {
      add("--overlap-param-gather");
      sheet_.carries({Feature::gathers_beside_compute});
    } else {
      sheet_.leaves_out(Feature::gathers_beside_compute,
                        "--overlap-param-gather needs --use-distributed-optimizer and --overlap-grad-reduce");
    }
    if (layout_.zero >= 2) {
      sheet_.leaves_out(Feature::gradient_buckets, "Megatron-FSDP has a bucket for each layer");
    } else if (!facts.reductions_beside_compute) {
      add_whole_buckets();
    } else {
      add_bucket_size();
    }
  }

  // Without overlap Megatron reduces all gradients of a model chunk at once.
  void add_whole_buckets() {
    if (std::ssize(gradient_buckets(sheet_.plan(), 0)) <= layout_.vpp + 1) {
      sheet_.carries({Feature::gradient_buckets});
    } else {
      sheet_.leaves_out(Feature::gradient_buckets, "without overlap Megatron-LM has one bucket for a model chunk");
    }
  }

  // The parameters of the bucket in the middle, by size: most are those of a layer.
  static std::int64_t size_of_most(const std::vector<std::vector<std::int64_t>>& buckets) {
    std::vector<std::int64_t> sizes;
    for (const auto& bucket : buckets) sizes.push_back(std::accumulate(bucket.begin(), bucket.end(), std::int64_t{0}));
    const auto middle = sizes.begin() + std::ssize(sizes) / 2;
    std::nth_element(sizes.begin(), middle, sizes.end());
    return *middle;
  }

  // Megatron cuts the first model chunk of the first stage; every other chunk is one bucket.
  void add_bucket_size() {
    std::vector<std::vector<std::int64_t>> buckets;
    for (const GradientBucket& bucket : gradient_buckets(sheet_.plan(), 0)) {
      if (bucket.chunk == 0) buckets.push_back(bucket.parameters);
    }
    // An embedding that the last stage shares has a bucket of its own, the last in Megatron's order.
    if (layout_.pp > 1 && layout_.zero > 0 && sheet_.model().tied_embeddings && buckets.size() > 1) {
      const std::vector<std::int64_t> embedding{local_vocab(sheet_.model(), layout_) * sheet_.model().hidden};
      std::erase(buckets, embedding);
    }
    const BucketLimits limits = limits_of_all(buckets);
    const std::int64_t by_default = std::max<std::int64_t>(40'000'000, 1'000'000 * layout_.dp * layout_.cp);
    if (limits.possible()) {
      const bool keeps_default = limits.allow(by_default);
      add("--ddp-bucket-size", keeps_default ? by_default : limits.at_most.value_or(limits.above + 1));
      sheet_.carries({Feature::gradient_buckets});
    } else {
      const std::int64_t size = size_of_most(buckets);
      add("--ddp-bucket-size", size);
      sheet_.leaves_out(
          Feature::gradient_buckets,
          fmt::format("no one bucket size cuts them alike; {} parameters have the one in the middle", size));
    }
  }

  void add_layer_overlap() {
    const TransferFacts& facts = sheet_.facts();
    if (facts.tensor_parallel_parts) add_tensor_parallel_overlap();
    if (facts.woven && facts.experts_beside_compute) add_woven_passes();
    if (mindspeed_) {
      sheet_.leaves_out(Feature::programs, "HCCL chooses");
    } else {
      sheet_.leaves_out(Feature::programs, "NCCL chooses; --to nccl-tuner writes a file for its tuner plugin");
      sheet_.leaves_out(Feature::thread_blocks,
                        "--to megatron-nccl writes the file of --nccl-communicator-config-path");
    }
    // These follow from the flags: Megatron has the same streams and events.
    if (!facts.woven) sheet_.carries({Feature::queues, Feature::waits});
  }

  // MindSpeed's own checks (features_manager/pipeline_parallel/fb_overlap_feature.py) refuse other combinations.
  void add_woven_passes() {
    if (!mindspeed_) {
      add("--overlap-moe-expert-parallel-comm");
    } else if (sheet_.facts().reductions_beside_compute || layout_.etp > 1) {
      sheet_.leaves_out(Feature::woven_passes,
                        "MindSpeed refuses --moe-fb-overlap beside --overlap-grad-reduce and with etp above 1");
      return;
    } else {
      add("--moe-fb-overlap");
      sheet_.warn("--moe-fb-overlap needs --moe-grouped-gemm and no allgather or alltoall_seq dispatcher");
    }
    sheet_.carries({Feature::woven_passes});
  }

  void add_tensor_parallel_overlap() {
    sheet_.carries({Feature::tensor_parallel_parts});
    if (mindspeed_) {
      if (sheet_.model().experts) sheet_.warn("MindSpeed says that --use-ascend-coc is not adapted to experts yet");
      add("--use-ascend-coc");
      add("--coc-parallel-num", sheet_.facts().tensor_parallel_pieces);
    } else {
      add("--tp-comm-overlap");
      sheet_.warn("--to te-userbuffers writes the file of --tp-comm-overlap-cfg with the numbers of parts and SMs");
      sheet_.leaves_out(Feature::movers, "--to te-userbuffers writes the file of --tp-comm-overlap-cfg");
      if (!layout_.sequence_parallel) sheet_.warn("--tp-comm-overlap needs --sequence-parallel");
    }
  }

  void warn() {
    if (layout_.zero >= 2 && !mindspeed_ && (layout_.tp > 1 || layout_.cp > 1)) {
      sheet_.warn(
          "Megatron-FSDP needs CUDA_DEVICE_MAX_CONNECTIONS above 1, tensor and context parallelism need 1 on GPUs "
          "before Blackwell: one of them loses its overlap");
    } else if (layout_.tp > 1 || layout_.cp > 1) {
      sheet_.warn(
          "CUDA_DEVICE_MAX_CONNECTIONS=1 is asserted before Blackwell for tp or cp above 1; it can keep "
          "reductions of gradients from running beside compute");
    }
    if (mindspeed_ && sheet_.facts().gathers_beside_compute) {
      sheet_.warn(
          "MindSpeed's --reuse-fp32-param does not go with --overlap-param-gather where --use-legacy-models is set");
    }
    if (sheet_.facts().reductions_beside_compute && layout_.pp > 1 && layout_.zero < 2) {
      sheet_.warn(
          "Megatron-LM cuts buckets on the first pipeline stage only: later stages reduce a model chunk at once");
    }
  }

  ExportSheet& sheet_;
  const Layout& layout_;
  bool mindspeed_;
};

}  // namespace

void write_megatron_flags(ExportSheet& sheet) {
  MegatronWriter(sheet, Dialect::megatron).write();
}

void write_mindspeed_flags(ExportSheet& sheet) {
  MegatronWriter(sheet, Dialect::mindspeed).write();
}

}  // namespace weft
