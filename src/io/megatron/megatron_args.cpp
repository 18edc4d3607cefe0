#include "io/megatron/megatron_args.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"
#include "io/megatron/megatron_model.hpp"
#include "io/megatron/megatron_reader.hpp"
#include "io/megatron/pipeline_layout.hpp"

namespace weft {
namespace {

class LayoutReader {
 public:
  LayoutReader(MegatronReader& flags, const std::optional<Transformer>& model) : flags_(flags), model_(model) {}

  std::vector<LaunchSetting> read() {
    for (const auto& [flag, name] : {std::pair{"tp", "--tensor-model-parallel-size"},
                                     {"pp", "--pipeline-model-parallel-size"},
                                     {"cp", "--context-parallel-size"},
                                     {"micro-batch", "--micro-batch-size"},
                                     {"global-batch", "--global-batch-size"},
                                     {"seq", "--seq-length"}}) {
      if (const auto value = flags_.integer(name)) set(flag, std::to_string(*value), name);
    }
    read_expert_degrees();
    if (flags_.is_set("--sequence-parallel")) read_sequence_parallel();
    if (flags_.is_set("--use-tp-pp-dp-mapping")) set("mesh-order", "tp,cp,pp,dp", "--use-tp-pp-dp-mapping");
    read_precision();
    const auto clip = flags_.number("--clip-grad");
    set("clip-grad", fmt::format("{}", clip.value_or(1.0)), "--clip-grad");
    read_attention();
    read_dropout();
    read_cuda_graphs();
    read_recompute();
    read_sharding();
    read_stages();
    read_policy();
    read_tensor_parallel_overlap();
    read_expert_overlap();
    return std::move(settings_);
  }

 private:
  void set(const std::string& flag, const std::string& value, const std::string& name) {
    settings_.push_back({flag, value, flags_.where(name)});
  }

  void read_expert_degrees() {
    for (const auto& [flag, name] :
         {std::pair{"ep", "--expert-model-parallel-size"}, {"etp", "--expert-tensor-parallel-size"}}) {
      const auto degree = flags_.integer(name);
      if (!degree) continue;
      if (!model_ || model_->experts) {
        set(flag, std::to_string(*degree), name);
      } else if (*degree > 1 && flag == std::string_view("ep")) {
        fail("{} {}: needs --num-experts", flags_.where(name), *degree);  // as Megatron-LM has it
      } else if (*degree > 1) {
        flags_.note(name, "has no effect without --num-experts");
      }
    }
  }

  // Megatron turns it off by itself where there is nothing to split.
  void read_sequence_parallel() {
    if (flags_.integer("--tensor-model-parallel-size").value_or(1) > 1) {
      set("sequence-parallel", "true", "--sequence-parallel");
    } else {
      flags_.note("--sequence-parallel", "has no effect without tensor parallelism");
    }
  }

  void read_precision() {
    const bool bf16 = flags_.is_set("--bf16"), fp16 = flags_.is_set("--fp16");
    if (bf16 && fp16) fail("{}: --bf16 is given too", flags_.where("--fp16"));
    set("precision", bf16 ? "bf16" : fp16 ? "fp16" : "fp32", fp16 ? "--fp16" : "--bf16");
    // bf16 accumulates and reduces in fp32 by itself.
    const bool wide = flags_.is_set("--accumulate-allreduce-grads-in-fp32") || !fp16;
    const bool narrow = flags_.is_set("--grad-reduce-in-bf16");
    set("grad-dtype",
        narrow ? "bf16"
        : wide ? "fp32"
               : "fp16",
        narrow ? "--grad-reduce-in-bf16" : "--accumulate-allreduce-grads-in-fp32");
    read_products();
  }

  void read_products() {
    const bool hybrid = flags_.is_set("--fp8-hybrid");
    const auto fp8 = flags_.one_of("--fp8-format", {"e4m3", "hybrid"});
    const auto fp4 = flags_.one_of("--fp4-format", {"e2m1"});
    if (fp4) {
      set("products", "fp4", "--fp4-format");
    } else if (fp8 || hybrid) {
      set("products", "fp8", fp8 ? "--fp8-format" : "--fp8-hybrid");
    }
    if (!flags_.is_set("--fp8-param-gather")) return;
    if (!fp8 && !hybrid) fail("{}: Megatron-LM refuses it without --fp8-format", flags_.where("--fp8-param-gather"));
    if (flags_.is_set("--use-distributed-optimizer")) {
      set("fp8-param-gather", "true", "--fp8-param-gather");
    } else {
      flags_.note("--fp8-param-gather", "has no effect without the distributed optimizer");
    }
  }

  void read_attention() {
    const bool flash = flags_.is_set("--use-flash-attn");
    const auto backend = flags_.one_of("--attention-backend", {"auto", "flash", "fused", "unfused", "local"});
    const bool unfused = backend && (*backend == "unfused" || *backend == "local") && !flash;
    set("attention", unfused ? "unfused" : "flash", backend ? "--attention-backend" : "--use-flash-attn");
  }

  void read_dropout() {
    const bool off = has_no_dropout(flags_);
    if (model_ && model_->positions != Positions::learned) return;
    if (off) set("no-dropout", "true", "--hidden-dropout");
    if (model_ || off) return;
    for (const char* const name : {"--hidden-dropout", "--attention-dropout"}) {
      if (flags_.number(name))
        flags_.note(name, "the model is not in the file and keeps its own rates; give --dropout");
    }
  }

  // The older two flags are those of layers, and their scope may be the whole iteration.
  void read_cuda_graphs() {
    const char* const name = "--cuda-graph-impl";
    const auto impl = flags_.one_of(name, {"none", "local", "transformer_engine", "full_iteration"});
    const bool local = flags_.is_set("--enable-cuda-graph"), external = flags_.is_set("--external-cuda-graph");
    std::vector<std::string> parts;
    for (const char* const scope : {"--cuda-graph-scope", "--cuda-graph-modules"}) {
      for (const std::string& part : flags_.list(scope)) parts.push_back(part);
    }
    const bool layers = local || external || (impl && *impl != "none");
    if (!layers) return;
    const char* const from = local ? "--enable-cuda-graph" : external ? "--external-cuda-graph" : name;
    const auto names = [&](const char* what) { return std::find(parts.begin(), parts.end(), what) != parts.end(); };
    const bool whole_step = impl == "full_iteration" || names("full_iteration");
    if (!whole_step && !parts.empty() && !names("full")) {
      flags_.note(from, "graphs of parts of a layer are taken for graphs of whole layers");
    }
    set("cuda-graphs", whole_step ? "full" : "layer", from);
  }

  void read_recompute() {
    const auto granularity = flags_.one_of("--recompute-granularity", {"full", "selective"});
    const bool selective = flags_.is_set("--recompute-activations");
    const auto method = flags_.one_of("--recompute-method", {"uniform", "block"});
    const auto layers = flags_.integer("--recompute-num-layers");
    const std::vector<std::string> modules = flags_.list("--recompute-modules");
    if (granularity) {
      set("recompute", *granularity, "--recompute-granularity");
    } else if (selective) {
      set("recompute", "selective", "--recompute-activations");
    }
    if (granularity == "full" && method == "block") {
      if (!layers) flags_.note("--recompute-method", "all layers are recomputed without --recompute-num-layers");
      const std::int64_t most = model_ ? model_->layers : layers.value_or(0);  // more than there are are all
      if (layers) set("recompute-layers", std::to_string(std::min(*layers, most)), "--recompute-num-layers");
    } else if (granularity == "full" && layers.value_or(1) > 1) {
      flags_.note("--recompute-num-layers", "Weft keeps the input of every layer, not of every group of layers");
    }
    if (!modules.empty() && modules != std::vector<std::string>{"core_attn"}) {
      flags_.note("--recompute-modules", "selective recomputation is that of the attention core (core_attn) alone");
    }
  }

  bool has_megatron_fsdp() {
    const bool by_older_name = flags_.is_set("--use-custom-fsdp");
    return flags_.is_set("--use-megatron-fsdp") || by_older_name;
  }

  void read_sharding() {
    const bool optimizer = flags_.is_set("--use-distributed-optimizer");
    const bool megatron_fsdp = has_megatron_fsdp(), torch_fsdp = flags_.is_set("--use-torch-fsdp2");
    const std::vector<std::string> strategies{"no_shard", "optim", "optim_grads", "optim_grads_params"};
    const auto strategy = flags_.one_of("--data-parallel-sharding-strategy", strategies);
    std::ptrdiff_t stage = 0;
    if (torch_fsdp) {
      set("zero", std::to_string(stage = 3), "--use-torch-fsdp2");
    } else if (megatron_fsdp && strategy) {
      stage = std::find(strategies.begin(), strategies.end(), *strategy) - strategies.begin();
      set("zero", std::to_string(stage), "--data-parallel-sharding-strategy");
    } else if (optimizer) {
      set("zero", std::to_string(stage = 1), "--use-distributed-optimizer");
    }
    if (strategy && !megatron_fsdp) {
      flags_.note("--data-parallel-sharding-strategy", "has no effect without --use-megatron-fsdp");
    }
    read_optimizer_instances(stage > 0);
  }

  // Each instance has all shards. Ranks of data parallelism are counted with those of context parallelism.
  void read_optimizer_instances(bool shards) {
    const char* const name = "--num-distributed-optimizer-instances";
    const auto instances = flags_.integer(name);
    if (!instances || *instances == 1) return;
    if (!shards) {
      flags_.note(name, "has no effect without --use-distributed-optimizer");
    } else if (model_ && model_->experts) {
      flags_.note(name, "Weft has no counterpart for models with experts");
    } else {
      set("zero-replicas", std::to_string(*instances), name);
    }
  }

  std::int64_t layers() const { return model_ ? model_->layers : 0; }

  void read_stages() {
    const std::int64_t pp = flags_.integer("--pipeline-model-parallel-size").value_or(1);
    std::int64_t vpp = flags_.integer("--num-virtual-stages-per-pipeline-rank").value_or(1);
    if (vpp > 1) set("vpp", std::to_string(vpp), "--num-virtual-stages-per-pipeline-rank");
    const char* const by_layers = "--num-layers-per-virtual-pipeline-stage";
    if (const auto per_chunk = flags_.integer(by_layers)) {
      if (vpp > 1) fail("{}: --num-virtual-stages-per-pipeline-rank is given too", flags_.where(by_layers));
      if (!model_) fail("{}: needs --num-layers in the same file", flags_.where(by_layers));
      if (layers() % pp != 0 || layers() / pp % *per_chunk != 0) {
        fail("{} {}: does not divide the {} layers of {} stages evenly", flags_.where(by_layers), *per_chunk, layers(),
             pp);
      }
      vpp = layers() / pp / *per_chunk;
      if (vpp > 1) set("vpp", std::to_string(vpp), by_layers);
    }
    const char *const first_name = "--decoder-first-pipeline-num-layers", *const last_name =
                                                                              "--decoder-last-pipeline-num-layers";
    const auto first = flags_.integer(first_name), last = flags_.integer(last_name);
    if (first || last) read_uneven_stages(pp, vpp, first, last, flags_.where(first ? first_name : last_name));
    if (const auto text = flags_.text(kPipelineLayout)) read_pipeline_layout(*text, pp);
  }

  static constexpr const char* kPipelineLayout = "--pipeline-model-parallel-layout";

  void read_pipeline_layout(const std::string& text, std::int64_t pp) {
    const std::string from = flags_.where(kPipelineLayout);
    if (!model_) fail("{}: needs --num-layers in the same file", from);
    constexpr std::size_t kMaxLayers = 10'000;
    const auto layout = parse_pipeline_layout(text, kMaxLayers);
    if (!layout) fail("{} '{}': is no layout such as 'Et*3|(tt|)*2tL'", from, text);
    const auto stages = std::ssize(layout->layers);
    const std::int64_t named = std::accumulate(layout->layers.begin(), layout->layers.end(), std::int64_t{0});
    if (named != layers()) fail("{} '{}': names {} layers, --num-layers has {}", from, text, named, layers());
    if (stages % pp != 0) fail("{} '{}': has {} stages, which {} pipeline ranks cannot share", from, text, stages, pp);
    if (std::find(layout->layers.begin(), layout->layers.end(), 0) != layout->layers.end()) {
      flags_.note(kPipelineLayout, "Weft has layers in every model chunk: they are split as evenly as possible");
      return;
    }
    if (layout->predicts_more) flags_.note(kPipelineLayout, "layers of multi-token prediction are not planned");
    if (stages > pp) set("vpp", std::to_string(stages / pp), kPipelineLayout);
    set("stage-layers", fmt::format("{}", fmt::join(layout->layers, ",")), kPipelineLayout);
  }

  // The first and last stage as given, the others alike; the chunks of a stage alike.
  void read_uneven_stages(std::int64_t pp, std::int64_t vpp, std::optional<std::int64_t> first,
                          std::optional<std::int64_t> last, const std::string& from) {
    if (!model_) fail("{}: needs --num-layers in the same file", from);
    const std::int64_t others = pp - (first ? 1 : 0) - (last ? 1 : 0);
    const std::int64_t rest = layers() - first.value_or(0) - last.value_or(0);
    if (pp < 2 || others < 0 || rest < 0 || (others == 0 ? rest != 0 : rest % others != 0)) {
      fail("{}: the other {} of {} layers do not divide over the other {} of {} stages", from, rest, layers(), others,
           pp);
    }
    constexpr std::int64_t kMaxStages = 65'536;
    if (pp > kMaxStages || vpp > kMaxStages) fail("{}: more than {} stages", from, kMaxStages);
    std::vector<std::int64_t> chunks;
    for (std::int64_t chunk = 0; chunk < vpp; ++chunk) {
      for (std::int64_t stage = 0; stage < pp; ++stage) {
        const std::int64_t of_stage = first && stage == 0 ? *first : last && stage == pp - 1 ? *last : rest / others;
        if (of_stage % vpp != 0 || of_stage == 0) {
          fail("{}: stage {} has {} layers, which {} model chunks cannot share", from, stage, of_stage, vpp);
        }
        chunks.push_back(of_stage / vpp);
        if (static_cast<std::int64_t>(chunks.size()) > layers()) fail("{}: more model chunks than layers", from);
      }
    }
    settings_.push_back({"stage-layers", fmt::format("{}", fmt::join(chunks, ",")), from});
  }

  void read_policy() {
    const bool grad = flags_.is_set("--overlap-grad-reduce"), param = flags_.is_set("--overlap-param-gather");
    if (flags_.is_set("--use-torch-fsdp2")) {
      set("policy", "fsdp", "--use-torch-fsdp2");
      return;
    }
    if (param) require_of_param_gather(grad);
    set("policy",
        param  ? "megatron-param"
        : grad ? "megatron-grad"
               : "megatron-dist",
        param ? "--overlap-param-gather" : "--overlap-grad-reduce");
    if (const auto bucket = flags_.integer("--ddp-bucket-size")) {
      set("bucket-size", std::to_string(*bucket), "--ddp-bucket-size");
    }
  }

  // MindSpeed has two ways of its own.
  void read_tensor_parallel_overlap() {
    const char* const table = "--tp-comm-overlap-cfg";
    if (!flags_.list(table).empty()) {
      flags_.note(table, "its file is not read from here; give weft plan --tp-comm-overlap-cfg");
    }
    for (const char* const name : {"--tp-comm-overlap", "--use-ascend-coc", "--use-ascend-mc2"}) {
      if (!flags_.is_set(name)) continue;
      if (flags_.is_set("--use-torch-fsdp2")) {
        flags_.note(name, "policy fsdp waits for tensor-parallel traffic");
      } else if (flags_.integer("--tensor-model-parallel-size").value_or(1) > 1) {
        set("tp-comm-overlap", "true", name);
      } else {
        flags_.note(name, "has no effect without tensor parallelism");
      }
    }
  }

  void read_expert_overlap() {
    for (const auto& [name, flag] :
         {std::pair{"--overlap-moe-expert-parallel-comm", "overlap-moe-expert-parallel-comm"},
          {"--moe-fb-overlap", "overlap-moe-expert-parallel-comm"},  // of MindSpeed
          {"--delay-wgrad-compute", "delay-wgrad-compute"}}) {
      if (!flags_.is_set(name)) continue;
      if (flags_.is_set("--use-torch-fsdp2")) {
        flags_.note(name, "policy fsdp waits for all-to-alls");
      } else {
        set(flag, "true", name);
      }
    }
    const char* const type = "--moe-token-dispatcher-type";
    const auto dispatcher = flags_.one_of(type, {"allgather", "alltoall", "alltoall_seq", "flex"});
    // The backends of `flex`, DeepEP and HybridEP, both hand tokens on inside a node.
    flags_.one_of("--moe-flex-dispatcher-backend", {"deepep", "hybridep"});
    flags_.is_set("--moe-enable-deepep");
    if (flags_.integer("--expert-model-parallel-size").value_or(1) == 1) return;
    if (dispatcher == "flex") set("ep-forwarding", "true", type);
    // Megatron's own default.
    if (dispatcher.value_or("allgather") == "allgather") set("expert-exchange", "gathered", type);
  }

  // Megatron-LM asserts both when it reads its arguments, so no such job runs.
  void require_of_param_gather(bool grad) {
    const std::string from = flags_.where("--overlap-param-gather");
    if (!flags_.is_set("--use-distributed-optimizer") && !has_megatron_fsdp()) {
      fail("{}: Megatron-LM refuses it without --use-distributed-optimizer", from);
    }
    if (!grad) fail("{}: Megatron-LM refuses it without --overlap-grad-reduce", from);
  }

  MegatronReader& flags_;
  const std::optional<Transformer>& model_;
  std::vector<LaunchSetting> settings_;
};

// Returns the value that the script's last assignment gives a variable, as far as it is known: the default of
// `${NAME:-1}`.
std::optional<std::string> last_assigned(const std::string& text, const std::string& name) {
  std::optional<std::string> value;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t comment = line.find('#');
    const std::size_t at = line.find(name + "=");
    if (at == std::string::npos || at > comment) continue;
    std::string word = line.substr(at + name.size() + 1);
    if (const std::size_t fallback = word.find(":-"); word.starts_with("${") && fallback != std::string::npos) {
      word = word.substr(fallback + 2);
    }
    std::erase_if(word, [](char c) { return c == '"' || c == '\''; });
    value = word.substr(0, word.find_first_of(" \t\r;&|}\\"));
  }
  return value;
}

// Communication that Megatron issues beside backward's products starts in issue order only where the device has one
// connection. Scripts that do not set it leave it to the container, which does.
void note_connections(const std::string& text, LaunchJob& job) {
  const char* const name = "CUDA_DEVICE_MAX_CONNECTIONS";
  const auto value = last_assigned(text, name);
  if (!value || *value == "1" || value->starts_with("$")) return;
  job.ignored.push_back(
      {name, *value, "tensor-parallel traffic of backward is planned beside the products, as with 1"});
}

}  // namespace

LaunchJob read_megatron_args(const std::string& text, const std::string& file_name) {
  MegatronReader flags(read_launch_flags(text, file_name), file_name);
  LaunchJob job;
  job.model = read_megatron_model(flags);
  job.settings = LayoutReader(flags, job.model).read();
  job.ignored = flags.ignored();
  note_connections(text, job);
  return job;
}

}  // namespace weft
