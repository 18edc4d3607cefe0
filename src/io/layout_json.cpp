// Reader and writer of a layout.
#include "io/layout_json.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "compress/compression_format.hpp"
#include "io/extra_json.hpp"
#include "io/json/enum_names.hpp"
#include "io/json/json_reader.hpp"

namespace weft {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::int64_t kMaxDegree = 1'000'000'000;  // what validate() allows

// "tp,cp,dp,pp", as --mesh-order takes it.
std::string mesh_order_text(const std::vector<Axis>& order) {
  std::string text;
  for (const Axis axis : order) {
    if (!text.empty()) text += ',';
    text += name_of(axis);
  }
  return text;
}

std::vector<Axis> read_mesh_order(const JsonObject& object) {
  try {
    return parse_mesh_order(object.string("mesh_order"));
  } catch (const Error& error) {
    fail("{}: key 'mesh_order': {}", object.where(), error.what());
  }
}

template <class Enum>
void read_name(const JsonObject& object, const std::string& key, Enum last, Enum& result) {
  if (object.has(key)) result = static_cast<Enum>(object.one_of(key, names_up_to(last)));
}

void read_compression(const JsonObject& object, Layout& layout) {
  object.allow_only(std::vector<std::string>{"gradients", "weights", "min_elements", "rank", "between_nodes"});
  const auto format = [&](const char* key) {
    return static_cast<CompressionFormat>(object.one_of(key, names_up_to(CompressionFormat::power_sgd)));
  };
  if (object.has("weights")) layout.compress_weights = format("weights");
  if (object.has("gradients") || !object.has("weights")) layout.compress.format = format("gradients");
  layout.compress.min_elements = object.integer_or("min_elements", layout.compress.min_elements, 1, kMaxDegree);
  layout.compress.rank = object.integer_or("rank", layout.compress.rank, 1, kMaxDegree);
  layout.compress.between_nodes = object.boolean_or("between_nodes", layout.compress.between_nodes);
}

}  // namespace

ordered_json layout_to_json(const Layout& layout) {
  ordered_json result{{"tp", layout.tp},
                      {"pp", layout.pp},
                      {"vpp", layout.vpp},
                      {"dp", layout.dp},
                      {"cp", layout.cp},
                      {"ep", layout.ep},
                      {"etp", layout.etp},
                      {"micro_batch", layout.micro_batch},
                      {"global_batch", layout.global_batch},
                      {"seq", layout.seq},
                      {"zero", layout.zero},
                      {"sequence_parallel", layout.sequence_parallel},
                      {"recompute", name_of(layout.recompute)},
                      {"attention", name_of(layout.attention)},
                      {"precision", name_of(layout.precision)},
                      {"grad_dtype", name_of(layout.grad_dtype)},
                      {"clip_grad", layout.clip_grad},
                      {"schedule", name_of(layout.schedule)}};
  if (layout.zero_shards > 0) result["zero_shards"] = layout.zero_shards;
  if (layout.zero_secondary > 0) result["zero_secondary"] = layout.zero_secondary;
  if (layout.compress.is_on() || layout.encodes_weights()) {
    ordered_json compress = ordered_json::object();
    if (layout.compress.is_on()) compress["gradients"] = name_of(layout.compress.format);
    if (layout.encodes_weights()) compress["weights"] = name_of(layout.compress_weights);
    compress["min_elements"] = layout.compress.min_elements;
    if (layout.compress.format == CompressionFormat::power_sgd) compress["rank"] = layout.compress.rank;
    if (layout.compress.between_nodes) compress["between_nodes"] = true;
    result["compress"] = std::move(compress);
  }
  if (layout.layer_group > 1) result["layer_group"] = layout.layer_group;
  if (layout.reduce_every == Layout::kWholeStep) {
    result["reduce_every"] = "step";
  } else if (layout.reduce_every > 0) {
    result["reduce_every"] = layout.reduce_every;
  }
  if (layout.has_slices()) result["slice_tokens"] = layout.slice_tokens;
  if (layout.kfac_interval > 0) result["kfac_interval"] = layout.kfac_interval;
  if (!layout.tasks.empty() || !layout.may_wait.empty()) result["extra"] = extra_to_json(layout);
  if (layout.warm_up_depth > 0) result["warm_up_depth"] = layout.warm_up_depth;
  if (!layout.dropout) result["dropout"] = false;
  if (layout.expert_exchange != ExpertExchange::padded) result["expert_exchange"] = name_of(layout.expert_exchange);
  if (layout.dispatch_fp8) result["dispatch_fp8"] = true;
  if (layout.products != ProductFormat::stored) result["products"] = name_of(layout.products);
  if (layout.fp8_param_gather) result["fp8_param_gather"] = true;
  if (layout.ep_forwarding) result["ep_forwarding"] = true;
  if (!layout.recompute_layers.empty()) result["recompute_layers"] = layout.recompute_layers;
  if (!layout.stage_layers.empty()) result["stage_layers"] = layout.stage_layers;
  result["mesh_order"] = mesh_order_text(layout.mesh_order);
  return result;
}

Layout layout_from_json(const json& value, const std::string& where) {
  const JsonObject object(value, where);
  object.allow_only(std::vector<std::string>{"tp",
                                             "pp",
                                             "vpp",
                                             "dp",
                                             "cp",
                                             "ep",
                                             "etp",
                                             "micro_batch",
                                             "global_batch",
                                             "seq",
                                             "zero",
                                             "sequence_parallel",
                                             "recompute",
                                             "recompute_layers",
                                             "attention",
                                             "precision",
                                             "grad_dtype",
                                             "clip_grad",
                                             "schedule",
                                             "stage_layers",
                                             "mesh_order",
                                             "dropout",
                                             "dispatch_fp8",
                                             "ep_forwarding",
                                             "expert_exchange",
                                             "zero_shards",
                                             "zero_secondary",
                                             "layer_group",
                                             "reduce_every",
                                             "compress",
                                             "slice_tokens",
                                             "warm_up_depth",
                                             "kfac_interval",
                                             "extra",
                                             "products",
                                             "fp8_param_gather"});
  Layout layout;
  layout.tp = object.integer_or("tp", layout.tp, 1, kMaxDegree);
  layout.pp = object.integer_or("pp", layout.pp, 1, kMaxDegree);
  layout.vpp = object.integer_or("vpp", layout.vpp, 1, kMaxDegree);
  layout.dp = object.integer_or("dp", layout.dp, 1, kMaxDegree);
  layout.cp = object.integer_or("cp", layout.cp, 1, kMaxDegree);
  layout.ep = object.integer_or("ep", layout.ep, 1, kMaxDegree);
  layout.etp = object.integer_or("etp", layout.etp, 1, kMaxDegree);
  layout.micro_batch = object.integer_or("micro_batch", layout.micro_batch, 1, kMaxDegree);
  layout.global_batch = object.integer("global_batch", 1, kMaxDegree);
  layout.seq = object.integer("seq", 1, kMaxDegree);
  layout.zero = static_cast<int>(object.integer_or("zero", layout.zero, 0, 3));
  layout.zero_shards = object.has("zero_shards") ? object.integer("zero_shards", 1, kMaxDegree) : 0;
  layout.zero_secondary = object.has("zero_secondary") ? object.integer("zero_secondary", 1, kMaxDegree) : 0;
  layout.layer_group = object.integer_or("layer_group", layout.layer_group, 1, kMaxDegree);
  if (object.has("reduce_every")) {
    const bool whole_step = value.at("reduce_every").is_string();
    if (whole_step && object.string("reduce_every") != "step") object.reject("reduce_every", "a number, or 'step'");
    layout.reduce_every = whole_step ? Layout::kWholeStep : object.integer("reduce_every", 1, kMaxDegree);
  }
  if (object.has("compress")) read_compression(object.object("compress"), layout);
  layout.sequence_parallel = object.boolean_or("sequence_parallel", layout.sequence_parallel);
  layout.dropout = object.boolean_or("dropout", layout.dropout);
  read_name(object, "expert_exchange", ExpertExchange::gathered, layout.expert_exchange);
  layout.dispatch_fp8 = object.boolean_or("dispatch_fp8", layout.dispatch_fp8);
  layout.ep_forwarding = object.boolean_or("ep_forwarding", layout.ep_forwarding);
  read_name(object, "products", ProductFormat::fp4, layout.products);
  layout.fp8_param_gather = object.boolean_or("fp8_param_gather", layout.fp8_param_gather);
  read_name(object, "recompute", Recompute::local, layout.recompute);
  if (object.has("recompute_layers")) layout.recompute_layers = object.integers("recompute_layers", 0, kMaxDegree);
  read_name(object, "attention", AttentionKernel::unfused, layout.attention);
  read_name(object, "precision", ElementType::fp8, layout.precision);
  read_name(object, "grad_dtype", ElementType::fp8, layout.grad_dtype);
  layout.clip_grad = object.number_or("clip_grad", layout.clip_grad, 0);
  if (object.has("schedule")) {
    // Plans made before loops were searched say auto of two chunks in waves.
    layout.schedule =
        with_placement(static_cast<PipelineSchedule>(object.one_of("schedule", schedule_names())), layout.vpp);
  }
  if (object.has("stage_layers")) layout.stage_layers = object.integers("stage_layers", 1, kMaxDegree);
  layout.warm_up_depth = object.integer_or("warm_up_depth", 0, 1, kMaxDegree);
  layout.kfac_interval = object.integer_or("kfac_interval", 0, 1, kMaxDegree);
  if (object.has("extra")) {
    const JsonObject extra = object.object("extra");
    extra.allow_only(std::vector<std::string>{"tasks", "may_wait"});
    read_extra(extra, layout);
  }
  if (object.has("slice_tokens")) layout.slice_tokens = object.integers("slice_tokens", 1, kMaxDegree);
  if (object.has("mesh_order")) layout.mesh_order = read_mesh_order(object);
  return layout;
}

}  // namespace weft
