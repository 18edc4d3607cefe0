#include <fmt/format.h>

#include <algorithm>

#include "app/cli.hpp"
#include "app/commands.hpp"
#include "app/files.hpp"
#include "app/flags.hpp"
#include "app/inputs.hpp"
#include "app/output_paths.hpp"
#include "app/verify_command.hpp"
#include "base/error.hpp"
#include "io/export/export_format.hpp"
#include "io/plan_json.hpp"
#include "plan/verify/verify_plan.hpp"

namespace weft {
namespace {

std::string description() {
  std::string text =
      "Writes a plan as the flags or files of a training framework (docs/export.md). What the format cannot say is\n"
      "listed on stderr, and in the file where it has comments. Formats:\n";
  for (const ExportFormat& format : export_formats()) text += fmt::format("  {:<21}{}\n", format.name, format.summary);
  return text;
}

void print_account(std::ostream& err, const ExportFormat& format, const Exported& exported) {
  for (const std::string& sentence : exported.warnings) err << fmt::format("weft: {}: {}\n", format.name, sentence);
  for (const std::string& sentence : exported.left_out) {
    err << fmt::format("weft: {}: left out: {}\n", format.name, sentence);
  }
}

void write_files(const Exported& exported, const std::optional<std::string>& output, std::ostream& out) {
  const bool one = exported.files.size() == 1 && exported.files.front().name.empty();
  if (one && !output) {
    out << exported.files.front().text;
    return;
  }
  if (!output) fail("--output: is missing; the format has {} files, give a folder for them", exported.files.size());
  if (!one) make_folder(*output);
  for (const ExportedFile& file : exported.files) {
    const std::filesystem::path path =
        one ? std::filesystem::path(*output) : std::filesystem::path(*output) / file.name;
    write_text_file(path, [&](std::ostream& stream) { stream << file.text; });
    out << "Written: " << path.string() << "\n";
  }
}

}  // namespace

int run_export_command(const Arguments& arguments, std::ostream& out, std::ostream& err) {
  Flags flags("export", description(), "weft export out/plan/plan.json --to megatron -o flags.sh");
  flags.positional("plan", "the plan file");
  flags.value("to", "FORMAT", "what is written");
  flags.value("output", "FILE", "write there instead of printing (-o); a folder for formats of several files");
  flags.value("profile", "FILE", "a JSON file with measured efficiencies (docs/profile-format.md)");
  flags.value("config", "FILE", "a JSON object with flags as keys; the command line wins");
  Arguments long_names = arguments;
  std::replace(long_names.begin(), long_names.end(), std::string("-o"), std::string("--output"));
  flags.parse(long_names);
  const auto file = flags.text("plan");
  if (!file) fail("weft export: name the plan file, e.g. weft export out/plan/plan.json --to megatron");
  const auto name = flags.text("to");
  if (!name) fail("--to: is missing; weft export --help lists the formats");
  const ExportFormat& format = export_format(*name);
  using Names = std::vector<std::string>;
  require_outputs_can_be_written(flags, format.several_files ? Names{"output"} : Names{},
                                 format.several_files ? Names{} : Names{"output"});
  SavedPlan saved = read_saved_plan(read_text_file(*file), *file);
  const Profile profile = read_profile_of_plan(flags, saved);

  // A plan that does not fit here may fit where it will run.
  const CheckedPlan checked = check_plan(std::move(saved.plan), {.check_memory = false});
  if (checked.violation) {
    print_verification(out, *file, checked.violation, false);
    return kAnswerIsNo;
  }
  const Exported exported =
      export_plan(*checked.whole, profile, format, saved.conditions ? saved.conditions->launch_flags : Names{});
  print_account(err, format, exported);
  write_files(exported, flags.text("output"), out);
  return kOk;
}

}  // namespace weft
