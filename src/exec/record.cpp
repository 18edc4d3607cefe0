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
  if (ordered_json dropout = dropout_to_json(record.model, record.layout); !dropout.is_null()) {
    json["dropout"] = std::move(dropout);
  }
  return json;
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
  write_file(folder / "batches.bin", [&](std::ostream& out) {
    out.write(reinterpret_cast<const char*>(record.batches.data()),
              static_cast<std::streamsize>(record.batches.size() * sizeof(std::int64_t)));
  });
  write_file(folder / "run.json", [&](std::ostream& out) { out << json_text(run_to_json(record), 2) << '\n'; });
}

}  // namespace weft
