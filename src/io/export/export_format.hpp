// The formats that a plan can be exported to: one row of a table for each, one source file for each writer.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/export/export_sheet.hpp"

namespace weft {

struct ExportFormat {
  std::string_view name;     // of --to
  std::string_view target;   // in sentences: "Megatron-LM"
  std::string_view summary;  // for --help
  std::string_view comment;  // what begins a comment line in the file; empty: the format has no comments
  // Throws Error where the target cannot run such a plan at all.
  void (*write)(ExportSheet& sheet);
  bool several_files = false;  // a folder of files instead of one
};

std::span<const ExportFormat> export_formats();
// Throws Error that names the nearest format.
const ExportFormat& export_format(const std::string& name);

// The plan must be safe (verify_plan). Where the format has comments, the file begins with what is left out and the
// warnings. `profile` is for formats that tell how long operations take, `launch_flags`
// (PlanConditions) for Megatron's.
Exported export_plan(const WholePlan& whole, const Profile& profile, const ExportFormat& format,
                     const std::vector<std::string>& launch_flags = {});

}  // namespace weft
