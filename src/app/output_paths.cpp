#include "app/output_paths.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

// Folders that were made to see whether they can be, the outermost first; removed at the end.
class TrialFolders {
 public:
  TrialFolders() = default;
  TrialFolders(const TrialFolders&) = delete;
  TrialFolders& operator=(const TrialFolders&) = delete;
  ~TrialFolders() {
    for (auto made = made_.rbegin(); made != made_.rend(); ++made) ::rmdir(made->c_str());
  }

  // "" or why it cannot be made.
  std::string make(const fs::path& folder) {
    std::error_code error;
    const fs::file_status status = fs::status(folder, error);
    if (fs::is_directory(status)) return "";
    if (fs::exists(status)) return "there is a file in the way";
    if (fs::is_symlink(fs::symlink_status(folder, error))) return "it is a link to nothing";
    const fs::path above = folder.parent_path();
    if (!above.empty() && above != folder) {
      if (std::string reason = make(above); !reason.empty()) return above.string() + ": " + reason;
    }
    if (!fs::create_directory(folder, error) && error) return error.message();
    made_.push_back(folder);
    return "";
  }

 private:
  std::vector<fs::path> made_;
};

// Returns why no file can be written there, or "". It asks the system, because permissions do not show that a disk is
// read-only.
std::string try_a_file_in(const fs::path& folder) {
  std::string name = (folder / ".weft-XXXXXX").string();
  const int descriptor = ::mkstemp(name.data());
  if (descriptor < 0) return std::strerror(errno);
  constexpr char kText[4096] = {};  // a full disk still makes empty files
  const bool written = ::write(descriptor, kText, sizeof kText) == static_cast<ssize_t>(sizeof kText);
  const std::string reason = written ? "" : std::strerror(errno);
  ::close(descriptor);
  ::unlink(name.c_str());
  return reason;
}

// Whether commands write files of such a name into the folder of --out: "trace-ddp.json.gz".
bool is_output_name(const std::string& name) {
  constexpr std::string_view kBegins[] = {"plan",    "trace", "timeline", "sweep",
                                          "kernels", "bench", "profile",  "report"};
  constexpr std::string_view kEnds[] = {".json", ".json.gz", ".csv", ".html"};
  return std::any_of(std::begin(kBegins), std::end(kBegins), [&](auto begin) { return name.starts_with(begin); }) &&
         std::any_of(std::begin(kEnds), std::end(kEnds), [&](auto end) { return name.ends_with(end); });
}

// "" or the name of a folder that stands where a file would be written.
std::string folder_in_the_way(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (is_output_name(name) && entry.is_directory(ignored)) return name;
  }
  return "";
}

// "a/b/" is the folder "a/b".
fs::path without_trailing_slash(const std::string& text) {
  const fs::path path(text);
  return path.has_filename() || !path.has_parent_path() ? path : path.parent_path();
}

void require_folder(const std::string& flag, const std::string& text) {
  if (text.empty()) fail("--{}: is empty; name a folder", flag);
  TrialFolders trial;
  const fs::path folder = without_trailing_slash(text);
  if (const std::string reason = trial.make(folder); !reason.empty()) {
    fail("--{} {}: cannot be created: {}", flag, text, reason);
  }
  if (const std::string reason = try_a_file_in(folder); !reason.empty()) {
    fail("--{} {}: cannot be written to: {}", flag, text, reason);
  }
  if (const std::string name = folder_in_the_way(folder); !name.empty()) {
    fail("--{} {}: cannot be written to: {} is a folder, not a file", flag, text, name);
  }
}

void require_file(const std::string& flag, const std::string& text) {
  if (text.empty()) fail("--{}: is empty; name a file", flag);
  const fs::path file(text);
  std::error_code ignored;
  if (fs::is_directory(file, ignored) || !file.has_filename()) fail("--{} {}: is a folder, not a file", flag, text);
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::exists(folder, ignored)) {
    fail("--{} {}: cannot be written: there is no folder {}", flag, text, folder.string());
  }
  if (const std::string reason = try_a_file_in(folder); !reason.empty()) {
    fail("--{} {}: cannot be written: {}", flag, text, reason);
  }
}

}  // namespace

void require_outputs_can_be_written(const Flags& flags, const std::vector<std::string>& folders,
                                    const std::vector<std::string>& files) {
  for (const std::string& flag : folders) {
    if (const auto path = flags.text(flag)) require_folder(flag, *path);
  }
  for (const std::string& flag : files) {
    if (const auto path = flags.text(flag)) require_file(flag, *path);
  }
}

}  // namespace weft
