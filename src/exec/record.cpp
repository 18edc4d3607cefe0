#include "exec/record.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "base/json_text.hpp"
#include "base/output_file.hpp"
#include "exec/settings_json.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

ordered_json run_to_json(const RunRecord& record) {
  ordered_json json = {{"model", shape_to_json(record.model)},
                       {"global_batch", record.layout.global_batch},
                       {"micro_batch", record.layout.micro_batch},
                       {"seq", record.layout.seq},
                       {"tp", record.layout.tp},
                       {"cp", record.layout.cp},
                       {"pp", record.layout.pp},
                       {"vpp", record.layout.vpp},
                       {"schedule", name_of(record.layout.schedule)},
                       {"sequence_parallel", record.layout.sequence_parallel},
                       {"recompute", name_of(record.layout.recompute)},
                       {"attention", name_of(record.layout.attention)},
                       {"data_ranks", record.layout.dp},
                       {"ep", record.layout.ep},
                       {"etp", record.layout.etp},
                       {"zero", record.layout.zero},
                       {"policy", record.policy},
                       {"optimizer", optimizer_to_json(record.optimizer)},
                       {"clip_grad", record.layout.clip_grad},
                       {"seed", record.seed},
                       {"steps", record.losses.size()},
                       {"losses", record.losses}};
  if (!record.layout.recompute_layers.empty()) json["recompute_layers"] = record.layout.recompute_layers;
  if (record.layout.layer_group > 1) json["layer_group"] = record.layout.layer_group;
  if (record.layout.reduce_every != 0) json["reduce_every"] = reduce_every_in_words(record.layout);
  if (record.layout.has_slices()) json["slice_tokens"] = record.layout.slice_tokens;
  if (record.layout.warm_up_depth > 0) json["warm_up_depth"] = record.layout.warm_up_depth;
  if (record.layout.zero_shards > 0) json["zero_shards"] = record.layout.zero_shards;
  if (record.layout.zero_secondary > 0) json["zero_secondary"] = record.layout.zero_secondary;
  if (record.schedule != LearningRateSchedule{}) {
    json["lr_schedule"] = schedule_to_json(record.schedule);
    json["learning_rates"] = record.learning_rates;
  }
  if (!record.validation.empty()) {
    json["validation"] = ordered_json::array();
    for (const auto& [steps, loss] : record.validation) json["validation"].push_back({{"step", steps}, {"loss", loss}});
  }
  if (ordered_json dropout = dropout_to_json(record.model, record.layout); !dropout.is_null()) {
    json["dropout"] = std::move(dropout);
  }
  return json;
}

void write_tokens(const std::filesystem::path& file, const std::vector<std::int64_t>& tokens) {
  write_file(file, [&](std::ostream& out) {
    out.write(reinterpret_cast<const char*>(tokens.data()),
              static_cast<std::streamsize>(tokens.size() * sizeof(std::int64_t)));
  });
}

}  // namespace

void write_record(const std::filesystem::path& folder, const RunRecord& record) {
  const Layout& layout = record.layout;
  WEFT_CHECK(record.batches.size() ==
             record.losses.size() * static_cast<std::size_t>(layout.global_batch * (layout.seq + 1)));
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) fail("{}: cannot be created: {}", folder.string(), error.message());
  std::filesystem::remove(folder / "run.json", error);  // of an earlier run; what follows replaces its files
  write_safetensors(folder / "initial.safetensors", record.initial);
  write_safetensors(folder / "gradients.safetensors", record.gradients);
  write_safetensors(folder / "final.safetensors", record.final_weights);
  write_tokens(folder / "batches.bin", record.batches);
  if (!record.validation_batches.empty()) write_tokens(folder / "validation.bin", record.validation_batches);
  write_file(folder / "run.json", [&](std::ostream& out) { out << json_text(run_to_json(record), 2) << '\n'; });
}

}  // namespace weft
