#include "io/export/export_sheet.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {

void ExportSheet::leaves_out(Feature feature, std::string_view why) {
  reasons_[feature] = why;
}

void ExportSheet::warn(std::string_view sentence) {
  warnings_.emplace_back(sentence);
}

void ExportSheet::line(std::string_view text) {
  text_ += text;
  text_ += '\n';
}

void ExportSheet::file(std::string name, std::string text) {
  files_.push_back({std::move(name), std::move(text)});
}

Exported ExportSheet::finish(const std::string& target) const {
  Exported exported;
  exported.files = files_;
  if (files_.empty()) exported.files.push_back({"", text_});
  std::vector<std::string> without_reason;
  for (const PlanFeature& feature : features_of(plan())) {
    const auto reason = reasons_.find(feature.feature);
    if (reason != reasons_.end()) {
      exported.left_out.push_back(fmt::format("{}: {}", feature.words, reason->second));
    } else if (!carried_.contains(feature.feature)) {
      without_reason.push_back(feature.words);
    }
  }
  if (!without_reason.empty()) {
    exported.left_out.push_back(fmt::format("what {} has no setting for: {}", target, fmt::join(without_reason, "; ")));
  }
  exported.warnings = warnings_;
  return exported;
}

}  // namespace weft
