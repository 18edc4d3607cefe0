// Outputs that cannot be written are refused before the work, by every command that has some.
#include "app/output_paths.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

struct CommandLine {
  std::string words;
  std::string flag;  // that names the output
};

// Each has another fault that shows only when its work begins: that --out comes first shows that it was looked at
// first.
const std::vector<CommandLine> kCommandLines = {
    {"plan --model no-such-model --cluster dgx-a100:1", "--out"},
    {"plan --model no-such-model --cluster dgx-a100:1 --sweep tp=1,2", "--out"},
    {"plan --model no-such-model --cluster dgx-a100:1 --sweep tp=1,2", "--csv"},
    {"plan --model no-such-model --cluster dgx-a100:1 --lengths 128,256", "--out"},
    {"analyze no-such-trace.json", "--out"},
    {"analyze no-such-trace.json", "--csv"},
    {"analyze no-such-trace.json", "--trace"},
    {"collective bench --cluster local:2 --ranks 3", "--out"},
    {"collective list --ranks 0", "--out"},
    {"run --layers 2 --hidden 32 --heads 4 --seq 16 --vocab 256 --cluster local:2 --steps 2", "--out"},
    {"run --layers 2 --hidden 32 --heads 4 --seq 16 --vocab 256 --cluster local:2 --steps 2", "--record"},
    {"calibrate --layers 2 --hidden 32 --heads 4 --seq 16 --vocab 256 --cluster local:2", "--out"}};

std::size_t entries_in(const std::string& folder) {
  const std::filesystem::recursive_directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

void expect_refused(const CommandLine& line, const std::string& path, const std::string& reason) {
  const CliResult result = weft_cli(line.words + " " + line.flag + " " + path);
  EXPECT_EQ(result.code, kBadInput) << line.words;
  EXPECT_TRUE(result.err.starts_with("weft: " + line.flag + " " + path + ": ")) << line.words << "\n" << result.err;
  EXPECT_PRED2(contains, result.err, reason) << line.words;
  EXPECT_TRUE(result.out.empty()) << result.out;
}

TEST(OutputPaths, AFileInTheWayIsToldBeforeTheWork) {
  const ScratchFolder folder("outputs");
  const std::string file = folder.write("occupied", "text");
  for (const CommandLine& line : kCommandLines) {
    const bool is_folder = line.flag == "--out" || line.flag == "--record";
    if (is_folder) expect_refused(line, file, "there is a file in the way");
    expect_refused(line, file + "/below", is_folder ? file + ": there is a file in the way" : "Not a directory");
    EXPECT_EQ(entries_in(folder.path()), 1U) << line.words;
  }
  EXPECT_EQ(read_text_file(file), "text");
}

TEST(OutputPaths, FilesNeedAFolderThatIsThereAndAreNone) {
  const ScratchFolder folder("outputs");
  for (const CommandLine& line : kCommandLines) {
    if (line.flag == "--out" || line.flag == "--record") continue;
    expect_refused(line, folder.file("absent/file"), "there is no folder " + folder.file("absent"));
    expect_refused(line, folder.path(), "is a folder, not a file");
  }
  EXPECT_EQ(entries_in(folder.path()), 0U);
}

TEST(OutputPaths, WhereTheSystemMakesNoFilesItsReasonIsTold) {
  for (const CommandLine& line : kCommandLines) {
    const std::string path = "/proc/weft";
    expect_refused(line, path, line.flag == "--out" || line.flag == "--record" ? "cannot be created: " : "written: ");
  }
}

TEST(OutputPaths, AFolderWithoutPermissionIsToldBeforeTheWork) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const ScratchFolder folder("outputs");
  const std::filesystem::path closed = folder.file("closed");
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  for (const CommandLine& line : kCommandLines) expect_refused(line, (closed / "x").string(), "Permission denied");
  std::filesystem::permissions(closed, std::filesystem::perms::owner_all);
}

TEST(OutputPaths, AFolderWhereAFileWouldBeWrittenIsToldBeforeTheWork) {
  const ScratchFolder folder("outputs");
  std::filesystem::create_directory(folder.file("trace-ddp.json"));
  std::filesystem::create_directory(folder.file("other.json"));
  for (const CommandLine& line : kCommandLines) {
    if (line.flag == "--out") expect_refused(line, folder.path(), "trace-ddp.json is a folder, not a file");
  }
}

TEST(OutputPaths, LookingLeavesNothingBehind) {
  const ScratchFolder folder("outputs");
  // The folders could be made; then the model is found missing.
  const CliResult result = weft_cli(kCommandLines.front().words + " --out " + folder.file("a/b/c/"));
  EXPECT_EQ(result.code, kBadInput);
  EXPECT_PRED2(contains, result.err, "no-such-model");
  EXPECT_EQ(entries_in(folder.path()), 0U);
}

}  // namespace
}  // namespace weft
