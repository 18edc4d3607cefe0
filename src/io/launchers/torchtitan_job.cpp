#include "io/launchers/torchtitan_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "io/json/json_reader.hpp"
#include "io/launchers/toml_reader.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;

// The names of torch.distributed.pipelining, which takes them in any case; ours is empty where there is none.
struct Schedule {
  std::string_view name, ours;
  bool several_stages = false;  // on a rank
};
constexpr Schedule kSchedules[] = {{"1F1B", "1f1b"},
                                   {"GPipe", "gpipe"},
                                   {"Interleaved1F1B", "interleaved", true},
                                   {"LoopedBFS", "breadth-first", true},
                                   {"InterleavedZeroBubble", "", true},
                                   {"ZBVZeroBubble", "zbv", true},
                                   {"DualPipeV", "dualpipev", true},
                                   {"PipelineScheduleSingle", ""},
                                   {"PipelineScheduleMulti", "", true}};

std::string in_lower_case(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

class TorchTitanReader {
 public:
  TorchTitanReader(const nlohmann::json& config, const std::string& file) : file_(file), config_(config) {}

  LaunchJob read() {
    open("parallelism");
    read_degrees();
    read_sharding();
    read_pipeline();
    open("training");
    read_training();
    open("activation_checkpoint");
    read_recompute();
    open("model");
    read_converters();
    note_others();
    return std::move(job_);
  }

 private:
  void open(const std::string& section) {
    static const nlohmann::json kEmpty = nlohmann::json::object();
    section_ = section;
    const auto found = config_.find(section);
    values_ = found == config_.end() ? &kEmpty : &*found;
  }
  JsonObject values() const { return {*values_, file_ + ": [" + section_ + "]"}; }
  void use(const std::string& key) { used_.insert(section_ + "." + key); }

  std::int64_t integer(const std::string& key, std::int64_t fallback, std::int64_t least = 1) {
    use(key);
    return values().integer_or(key, fallback, least, kMost);
  }
  std::string word(const std::string& key, const std::string& fallback, const std::vector<std::string>& allowed) {
    use(key);
    return values().has(key) ? allowed[values().one_of(key, allowed)] : fallback;
  }
  void set(const std::string& flag, const std::string& value, const std::string& key) {
    job_.settings.push_back({flag, value, fmt::format("{}: key '{}.{}'", file_, section_, key)});
  }
  void set(const std::string& flag, std::int64_t value, const std::string& key) {
    set(flag, std::to_string(value), key);
  }
  void ignore(const std::string& key, std::string_view reason) {
    const auto found = values_->find(key);
    const std::string value = found == values_->end() || !found->is_primitive() ? "" : json_text(*found);
    job_.ignored.push_back({section_ + "." + key, value, std::string(reason)});
  }

  void read_degrees() {
    for (const auto& [flag, key] : {std::pair{"tp", "tensor_parallel_degree"},
                                    {"cp", "context_parallel_degree"},
                                    {"pp", "pipeline_parallel_degree"},
                                    {"ep", "expert_parallel_degree"}}) {
      const std::int64_t degree = integer(key, 1);
      if (degree > 1) set(flag, degree, key);
    }
    pp_ = integer("pipeline_parallel_degree", 1);
    use("expert_tensor_parallel_degree");
    if (values().has("expert_tensor_parallel_degree") && integer("expert_parallel_degree", 1) > 1) {
      set("etp", integer("expert_tensor_parallel_degree", 1), "expert_tensor_parallel_degree");
    }
    if (integer("tensor_parallel_degree", 1) > 1) set("sequence-parallel", "true", "tensor_parallel_degree");
    use("enable_async_tensor_parallel");
    if (values().boolean_or("enable_async_tensor_parallel", false)) {
      ignore("enable_async_tensor_parallel", "policies fsdp and ddp wait for tensor-parallel traffic");
    }
  }

  void read_sharding() {
    const std::int64_t replicas = integer("data_parallel_replicate_degree", 1);
    const std::int64_t shards = integer("data_parallel_shard_degree", -1, -1);  // -1: all that are left
    const std::string reshard = word("fsdp_reshard_after_forward", "default", {"default", "always", "never"});
    if (shards > 0) set("dp", replicas * shards, "data_parallel_shard_degree");
    if (shards == 1) {
      set("policy", "ddp", "data_parallel_shard_degree");
      set("bucket-mib", 100, "data_parallel_replicate_degree");  // TorchTitan's own
      data_ranks_ = replicas;
      return;
    }
    // By default parameters stay gathered between the micro-batches of a pipeline.
    const bool keeps = reshard == "never" || (reshard == "default" && pp_ > 1);
    set("zero", keeps ? 2 : 3, "fsdp_reshard_after_forward");
    set("policy", "fsdp", "data_parallel_shard_degree");
    if (shards > 1) data_ranks_ = replicas * shards;
    if (replicas > 1) set("zero-replicas", replicas, "data_parallel_replicate_degree");
  }

  void read_pipeline() {
    const std::string name = "pipeline_parallel_schedule", parts = "module_fqns_per_model_part",
                      by_layers = "pipeline_parallel_layers_per_stage";
    use(name);
    use(parts);
    use(by_layers);
    micro_batch_ = integer("pipeline_parallel_microbatch_size", 1);
    if (pp_ == 1) return;
    const Schedule& schedule = schedule_of(name);
    if (schedule.ours.empty()) {
      ignore(name, "Weft has no such schedule and plans its default for as many model chunks");
    } else {
      set("schedule", std::string(schedule.ours), name);
    }
    if (values().has(parts)) {
      read_model_parts(values().array(parts), parts);
    } else if (values().has(by_layers)) {
      ignore(by_layers, "the model's layers are not in the file; give --vpp");
    } else if (schedule.several_stages) {
      set("vpp", 2, name);  // TorchTitan's default
    }
  }

  const Schedule& schedule_of(const std::string& key) const {
    const std::string given = in_lower_case(values().string_or(key, "1F1B"));
    std::string names;
    for (const Schedule& schedule : kSchedules) {
      if (in_lower_case(schedule.name) == given) return schedule;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", schedule.name);
    }
    values().reject(key, "one of " + names);
  }

  void read_model_parts(const nlohmann::json& parts, const std::string& key) {
    std::vector<std::int64_t> layers;
    for (const nlohmann::json& part : parts) {
      if (!part.is_array()) values().reject(key, "a list of lists of module names");
      const auto is_layer = [](const nlohmann::json& name) {
        return name.is_string() && name.get<std::string>().starts_with("layers.");
      };
      layers.push_back(std::count_if(part.begin(), part.end(), is_layer));
    }
    const std::int64_t chunks = std::ssize(layers);
    if (chunks == 0 || chunks % pp_ != 0) {
      values().reject(key, fmt::format("as many lists as a multiple of the {} pipeline ranks", pp_));
    }
    if (chunks > pp_) set("vpp", chunks / pp_, key);
    if (std::find(layers.begin(), layers.end(), 0) != layers.end()) {
      ignore(key, "Weft has layers in every model chunk: they are split as evenly as possible");
    } else {
      set("stage-layers", fmt::format("{}", fmt::join(layers, ",")), key);
    }
  }

  void read_training() {
    const std::int64_t local = integer("local_batch_size", 8), global = integer("global_batch_size", -1, -1);
    set("micro-batch", pp_ > 1 ? micro_batch_ : local, "local_batch_size");
    if (global > 0) {
      set("global-batch", global, "global_batch_size");
    } else if (data_ranks_ > 0) {
      set("global-batch", local * data_ranks_, "local_batch_size");
    } else if (pp_ > 1) {
      if (local % micro_batch_ != 0) {
        values().reject("local_batch_size", fmt::format("a multiple of the micro-batch of {}", micro_batch_));
      }
      set("micro-batches", local / micro_batch_, "local_batch_size");
    }
    use("seq_len");
    if (values().has("seq_len")) set("seq", integer("seq_len", 2048), "seq_len");
    set("precision", word("mixed_precision_param", "bfloat16", {"bfloat16", "float32"}) == "bfloat16" ? "bf16" : "fp32",
        "mixed_precision_param");
    word("mixed_precision_reduce", "float32", {"float32"});
    set("grad-dtype", "fp32", "mixed_precision_reduce");
    use("max_norm");
    const auto norm = values_->find("max_norm");
    const bool unlimited = norm != values_->end() && norm->is_string() && norm->get<std::string>() == "inf";
    set("clip-grad", unlimited ? "0" : fmt::format("{}", values().number_or("max_norm", 1.0, 0)), "max_norm");
  }

  void read_recompute() {
    const std::string mode = word("mode", "selective", {"none", "selective", "full", "memory_budget"});
    if (mode == "memory_budget") {
      ignore("mode", "Weft recomputes none, the attention core or all of a layer");
    } else {
      set("recompute", mode, "mode");
      if (mode == "selective" && values().has("mode")) {
        ignore("mode", "TorchTitan keeps other operations; the attention core is recomputed here");
      }
    }
  }

  // What the model's converters make of its linear layers.
  void read_converters() {
    const std::string key = "converters";
    use(key);
    if (!values().has(key)) return;
    for (const nlohmann::json& converter : values().array(key)) {
      const std::string name = converter.is_string() ? converter.get<std::string>() : "";
      const bool is_mx = name == "mx" || name == "quantize.linear.mx";
      if (name == "float8" || name == "quantize.linear.float8" || is_mx) {
        set("products", "fp8", key);
        if (is_mx) ignore(key, "scaled in blocks: planned as fp8");
      } else {
        ignore(key, fmt::format("Weft has no counterpart of {}", json_text(converter)));
      }
    }
  }

  // Sections that no plan depends on are named as a whole.
  void note_others() {
    for (const auto& [section, keys] : config_.items()) {
      const bool read = section == "parallelism" || section == "training" || section == "activation_checkpoint";
      if (!read) {
        const bool model = section == "model";
        job_.ignored.push_back({section, "", model ? "gives no shape; give --model" : "no plan depends on it", !model});
        continue;
      }
      open(section);
      for (const auto& [key, value] : keys.items()) {
        if (!used_.contains(fmt::format("{}.{}", section, key))) ignore(key, "Weft has no counterpart");
      }
    }
  }

  std::string file_;
  const nlohmann::json& config_;
  std::string section_;
  const nlohmann::json* values_ = nullptr;
  std::set<std::string> used_;
  std::int64_t pp_ = 1, micro_batch_ = 1;
  std::int64_t data_ranks_ = 0;  // 0: unknown
  LaunchJob job_;
};

}  // namespace

LaunchJob read_torchtitan_config(const std::string& text, const std::string& file_name) {
  const nlohmann::json config = parse_toml(text, file_name);
  return TorchTitanReader(config, file_name).read();
}

}  // namespace weft
