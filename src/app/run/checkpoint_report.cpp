#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/run/run_report.hpp"
#include "base/text.hpp"
#include "base/units.hpp"

namespace weft {
namespace {

nlohmann::ordered_json number_or_null(double value) {
  return std::isnan(value) ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
}

std::string cost_in_words(const CheckpointStudy& study) {
  if (std::isnan(study.step_beside_save_s) || std::isnan(study.step_without_save_s)) return "";
  return fmt::format("; steps beside a save took {}, others {} ({:+.1f} %)",
                     format_time(nanos_from_seconds(study.step_beside_save_s)),
                     format_time(nanos_from_seconds(study.step_without_save_s)),
                     100 * (study.step_beside_save_s / study.step_without_save_s - 1));
}

}  // namespace

std::string checkpoint_text(const CheckpointStudy& study) {
  std::string text = fmt::format("\nCheckpoints: {} saved to {}", study.saves.saved, study.folder);
  if (study.saves.saved > 0) {
    text +=
        fmt::format(", {} each, the last of step {}", format_bytes(Bytes{study.saves.bytes}), study.saves.last_step);
  }
  if (study.saves.failed > 0) text += fmt::format("; {} could not be saved", study.saves.failed);
  text += cost_in_words(study);
  if (study.saves.waits > 0) {
    text += fmt::format("; {} times the run waited for the save before (a larger --checkpoint-every, a faster disk)",
                        study.saves.waits);
  }
  return text + "\n";
}

nlohmann::ordered_json checkpoint_json(const CheckpointStudy& study) {
  return {{"folder", study.folder},
          {"resumed_from", study.resumed_from},
          {"last_step", study.last_step},
          {"stopped", study.stopped},
          {"saved", study.saves.saved},
          {"failed", study.saves.failed},
          {"last_saved", study.saves.last_step},
          {"bytes", study.saves.bytes},
          {"waits", study.saves.waits},
          {"step_beside_save_s", number_or_null(study.step_beside_save_s)},
          {"step_without_save_s", number_or_null(study.step_without_save_s)}};
}

}  // namespace weft
