#include "io/launchers/deepspeed_job.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/element_type.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/text.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

// Keys that DeepSpeed knows and that change nothing here, with the reason.
struct UnusedKey {
  std::string_view name;
  std::string_view reason;
};
constexpr std::string_view kOfRun;
constexpr UnusedKey kUnusedKeys[] = {
    {"prescale_gradients", kOfRun},
    {"gradient_predivide_factor", kOfRun},
    {"wall_clock_breakdown", kOfRun},
    {"comms_logger", kOfRun},
    {"flops_profiler", kOfRun},
    {"autotuning", kOfRun},
    {"optimizer", kOfRun},
    {"scheduler", kOfRun},
    {"steps_per_print", kOfRun},
    {"aio", "Weft has no offloading"},
    {"pipeline", "the program says the stages; give --pp"},
    {"activation_checkpointing", "the program says which layers; give --recompute"},
};
constexpr UnusedKey kUnusedZeroKeys[] = {
    {"contiguous_gradients", kOfRun},
    {"reduce_scatter", kOfRun},
    {"use_multi_rank_bucket_allreduce", kOfRun},
    {"allgather_partitions", kOfRun},
    {"round_robin_gradients", kOfRun},
    {"stage3_gather_16bit_weights_on_model_save", kOfRun},
    {"allgather_bucket_size", "Weft gathers in the buckets of the gradients"},
    {"sub_group_size", "Weft updates all parameters at once"},
    {"stage3_prefetch_bucket_size", "Weft counts layers; give --prefetch"},
    {"stage3_max_live_parameters", "Weft counts layers; give --prefetch"},
    {"stage3_max_reuse_distance", "Weft gathers every layer again in backward"},
    {"stage3_param_persistence_threshold", "Weft shards small parameters too"},
    {"stage3_model_persistence_threshold", "Weft shards small parameters too"},
    {"stage3_module_granularity_threshold", "Weft gathers whole layers"},
    {"stage3_use_all_reduce_for_fetch_params", "Weft gathers parameters"},
    {"zero_quantized_nontrainable_weights", "Weft gathers parameters in their own type"},
    {"zeropp_loco_param", "Weft reduces gradients in one type"},
    {"mics_hierarchical_params_gather", "Weft chooses how gathers are carried out"},
    {"offload_param", "Weft has no offloading"},
    {"offload_optimizer", "Weft has no offloading"},
};

class DeepSpeedReader {
 public:
  DeepSpeedReader(const nlohmann::json& config, const std::string& file)
      : file_(file), config_(config, file), keys_(config) {}

  LaunchJob read() {
    read_batches();
    read_numerics();
    read_zero();
    note_others(keys_, kUnusedKeys, "", kUsed);
    return std::move(job_);
  }

 private:
  void set(const std::string& flag, const std::string& value, const std::string& key) {
    job_.settings.push_back({flag, value, fmt::format("{}: key '{}'", file_, key)});
  }
  void ignore(const std::string& key, const std::string& value, std::string_view reason) {
    job_.ignored.push_back(
        {key, value, reason.empty() ? "no plan depends on it" : std::string(reason), reason.empty()});
  }

  // Hugging Face's trainer fills such values in.
  static bool is_auto(const nlohmann::json& keys, const std::string& key) {
    const auto found = keys.find(key);
    return found != keys.end() && found->is_string() && found->get<std::string>() == "auto";
  }
  // Returns whether there is a value to read.
  bool given(const JsonObject& object, const nlohmann::json& keys, const std::string& key) {
    if (!object.has(key)) return false;
    if (!is_auto(keys, key)) return true;
    ignore(key, "auto", "the trainer fills it in; give the flag");
    return false;
  }

  void read_batches() {
    constexpr std::int64_t kMost = 1'000'000'000;
    const std::string micro = "train_micro_batch_size_per_gpu", global = "train_batch_size",
                      steps = "gradient_accumulation_steps";
    const auto read = [&](const std::string& key) -> std::optional<std::int64_t> {
      if (!given(config_, keys_, key)) return std::nullopt;
      return config_.integer(key, 1, kMost);
    };
    const auto sequences = read(micro), of_step = read(global), times = read(steps);
    if (sequences) set("micro-batch", std::to_string(*sequences), micro);
    if (of_step) set("global-batch", std::to_string(*of_step), global);
    if (!times) return;
    if (!of_step) {
      set("micro-batches", std::to_string(*times), steps);
    } else if (!sequences) {
      ignore(steps, std::to_string(*times), "the data-parallel ranks are not in the file; give --micro-batch");
    } else {
      const std::int64_t of_rank = *sequences * *times;
      if (*of_step % of_rank != 0) {
        config_.reject(global,
                       fmt::format("a multiple of {} = {} {} * {} {}", of_rank, micro, *sequences, steps, *times));
      }
      set("dp", std::to_string(*of_step / of_rank), global);
    }
  }

  void read_numerics() {
    const bool bf16 = is_enabled("bf16"), fp16 = is_enabled("fp16");
    if (bf16 && fp16) config_.reject("fp16", "off: bf16 is enabled too");
    const std::string precision = bf16 ? "bf16" : fp16 ? "fp16" : "fp32";
    set("precision", precision, bf16 ? "bf16" : "fp16");
    const std::vector<std::string> types{"fp32", "fp16", "bf16"};
    gradients_ = given(config_, keys_, "communication_data_type")
                     ? types[config_.one_of("communication_data_type", types)]
                     : precision;
    set("grad-dtype", gradients_, "communication_data_type");
    if (given(config_, keys_, "gradient_clipping")) {
      set("clip-grad", fmt::format("{}", config_.number("gradient_clipping", 0)), "gradient_clipping");
    }
  }

  bool is_enabled(const std::string& key) {
    if (!config_.has(key)) return false;
    const JsonObject section = config_.object(key);
    return given(section, keys_.at(key), "enabled") && section.boolean("enabled");
  }

  void read_zero() {
    if (!config_.has("zero_optimization")) {
      set("policy", "serial", "zero_optimization");
      return;
    }
    const JsonObject zero = config_.object("zero_optimization");
    const nlohmann::json& keys = keys_.at("zero_optimization");
    const std::int64_t stage = zero.integer_or("stage", 0, 0, 3);
    set("zero", std::to_string(stage), "zero_optimization.stage");
    const bool overlaps = given(zero, keys, "overlap_comm") ? zero.boolean("overlap_comm") : stage == 3;
    // Stage 0 reduces when backward has ended, whatever the key says.
    set("policy", !overlaps || stage == 0 ? "serial" : stage == 3 ? "fsdp" : "ddp", "zero_optimization.overlap_comm");
    if (given(zero, keys, "reduce_bucket_size")) read_bucket(zero, overlaps && (stage == 1 || stage == 2));
    if (given(zero, keys, "mics_shard_size")) {
      const std::int64_t shards = zero.integer("mics_shard_size", -1);
      if (shards > 0 && stage > 0) set("zero-shards", std::to_string(shards), "zero_optimization.mics_shard_size");
    }
    if (given(zero, keys, "zero_hpz_partition_size")) {
      const std::int64_t ranks = zero.integer("zero_hpz_partition_size", 1);
      if (ranks > 1 && stage == 3) {
        set("zero-secondary", std::to_string(ranks), "zero_optimization.zero_hpz_partition_size");
      }
    }
    if (stage == 3) read_quantised(zero, keys);
    note_others(keys, kUnusedZeroKeys, "zero_optimization.", kUsedOfZero);
  }

  // ZeRO++: eight bits for weights, four for gradients.
  void read_quantised(const JsonObject& zero, const nlohmann::json& keys) {
    const auto is_on = [&](const char* key) { return given(zero, keys, key) && zero.boolean(key); };
    const bool weights = is_on("zero_quantized_weights"), gradients = is_on("zero_quantized_gradients");
    if (!weights && !gradients) return;
    set("compress",
        fmt::format("{}{}{}", gradients ? "gradients=int4" : "", weights && gradients ? "," : "",
                    weights ? "weights=int8" : ""),
        gradients ? "zero_optimization.zero_quantized_gradients" : "zero_optimization.zero_quantized_weights");
  }

  void read_bucket(const JsonObject& zero, bool cuts) {
    const std::int64_t elements = zero.integer("reduce_bucket_size", 1, kMostElements);
    if (!cuts) return;
    const std::int64_t bytes = elements * (gradients_ == "fp32" ? 4 : 2);
    set("bucket-mib", fmt::format("{}", static_cast<double>(bytes) / (1024.0 * 1024.0)),
        "zero_optimization.reduce_bucket_size");
  }

  void note_others(const nlohmann::json& keys, std::span<const UnusedKey> unused, const std::string& prefix,
                   const std::set<std::string>& used) {
    std::vector<std::string> known(used.begin(), used.end());
    for (const UnusedKey& key : unused) known.emplace_back(key.name);
    for (const auto& [name, value] : keys.items()) {
      if (used.contains(name)) continue;
      const std::string text = value.is_primitive() ? json_text(value) : "";
      const auto is_named = [&, &key_name = name](const UnusedKey& key) { return key.name == key_name; };
      const auto found = std::find_if(unused.begin(), unused.end(), is_named);
      if (found != unused.end()) {
        ignore(prefix + name, text, found->reason);
      } else {
        ignore(prefix + name, text, "is not known here" + suggestion_of_one(name, known));
      }
    }
  }

  static std::string suggestion_of_one(const std::string& name, const std::vector<std::string>& known) {
    const std::string nearest = nearest_name(name, known);
    return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
  }

  static inline const std::set<std::string> kUsed{"train_batch_size",
                                                  "train_micro_batch_size_per_gpu",
                                                  "gradient_accumulation_steps",
                                                  "bf16",
                                                  "fp16",
                                                  "communication_data_type",
                                                  "gradient_clipping",
                                                  "zero_optimization"};
  static inline const std::set<std::string> kUsedOfZero{"stage",
                                                        "overlap_comm",
                                                        "reduce_bucket_size",
                                                        "mics_shard_size",
                                                        "zero_hpz_partition_size",
                                                        "zero_quantized_weights",
                                                        "zero_quantized_gradients"};

  std::string file_;
  JsonObject config_;
  const nlohmann::json& keys_;
  std::string gradients_ = "fp32";
  LaunchJob job_;
};

}  // namespace

namespace {

// Python writes 5e8 for an integer, and DeepSpeed takes it. Above 2^53 a float does not say which integer is meant.
void write_whole_floats_as_integers(nlohmann::json& value) {
  constexpr double kMostExact = 9007199254740992;
  if (value.is_structured()) {
    for (nlohmann::json& item : value) write_whole_floats_as_integers(item);
  } else if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (std::abs(number) <= kMostExact && number == std::floor(number)) value = static_cast<std::int64_t>(number);
  }
}

}  // namespace

LaunchJob read_deepspeed_config(const std::string& text, const std::string& file_name) {
  nlohmann::json config = parse_json(text, file_name);
  write_whole_floats_as_integers(config);
  return DeepSpeedReader(config, file_name).read();
}

}  // namespace weft
