#include "exec/checkpoint/checkpoint_folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "exec/checkpoint/shard_check.hpp"
#include "exec/checkpoint/synced_file.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr const char* kManifest = "manifest.json";
constexpr std::string_view kPrefix = "step-", kPartialPrefix = ".step-", kPartialSuffix = ".partial";
constexpr std::size_t kDigits = 8;
// A manifest has some 250 bytes for every piece: this is a model of a trillion parameters on thousands of ranks.
constexpr TextLimits kManifestLimits{Pipes::refused, std::int64_t{1} << 29, 0};

std::string note_name(std::int64_t rank) {
  return fmt::format("rank-{:05}.json", rank);
}

// "step-00000100" and nothing else; more digits where they are needed.
std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kDigits) return std::nullopt;
  std::int64_t step = 0;
  const char *const begin = name.data() + kPrefix.size(), *const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  if (error != std::errc{} || stop != end || step < 0 || checkpoint_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail("{}: cannot be read: {}", folder.string(), error.message());
  std::ranges::sort(names);
  return names;
}

void check_file(const fs::path& checkpoint, const StoredFile& file) {
  const fs::path path = checkpoint / file.name;
  const std::string place = checkpoint.string();
  std::error_code error;
  if (!fs::exists(path, error)) fail("{}: {} is missing", place, file.name);
  const std::int64_t size = file_size_of(path);
  if (size != file.bytes) fail("{}: {} has {} of {} bytes", place, file.name, size, file.bytes);
  const FileFacts facts = read_file_facts(path);
  if (facts.bytes != file.bytes || facts.checksum != file.checksum) {
    fail("{}: {} has changed since it was written (CRC-32 {:08x}, not {:08x})", place, file.name, facts.checksum,
         file.checksum);
  }
}

// First out of sight: whoever is killed while files go leaves nothing that looks like a checkpoint.
void remove_checkpoint(const fs::path& folder, std::int64_t step) {
  constexpr const char* kRemoved = "removed";  // in place of a run's id
  remove_partial(folder, step, kRemoved);
  std::error_code ignored;
  fs::rename(folder / checkpoint_name(step), partial_folder(folder, step, kRemoved), ignored);
  remove_partial(folder, step, kRemoved);
}

// Also of a link to nowhere.
bool is_name_taken(const fs::path& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  return fmt::format("{}{:0{}}", kPrefix, step, kDigits);
}

std::string shard_name(std::int64_t rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

fs::path partial_folder(const fs::path& folder, std::int64_t step, const std::string& run_id) {
  return folder / fmt::format(".{}.{}{}", checkpoint_name(step), run_id, kPartialSuffix);
}

void make_partial_folder(const fs::path& partial) {
  make_checkpoint_folder(partial.parent_path());
  if (::mkdir(partial.c_str(), 0777) == 0) return;
  const int error = errno;
  std::error_code ignored;
  // Another rank may have made it.
  if (error == EEXIST && fs::symlink_status(partial, ignored).type() == fs::file_type::directory) return;
  fail("{}: cannot be created: {}", partial.string(), std::strerror(error));
}

std::vector<std::int64_t> checkpoints_in(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::ranges::sort(steps, std::greater());
  return steps;
}

CheckpointManifest read_manifest(const fs::path& checkpoint) {
  const fs::path path = checkpoint / kManifest;
  std::error_code error;
  if (!fs::exists(path, error)) fail("{}: {} is missing", checkpoint.string(), kManifest);
  return parse_manifest(read_text_file(path, kManifestLimits), fmt::format("{}: {}", checkpoint.string(), kManifest));
}

CheckpointManifest read_checkpoint(const fs::path& checkpoint) {
  CheckpointManifest manifest = read_manifest(checkpoint);
  for (const StoredFile& file : manifest.files) {
    check_file(checkpoint, file);
    check_shard(checkpoint, manifest, file);
  }
  return manifest;
}

void announce_shard(const fs::path& partial, std::int64_t rank, const StoredFile& shard) {
  SyncedFile note(partial / note_name(rank));
  note.append(stored_file_text(shard));
  note.sync();
}

std::int64_t put_together(const fs::path& folder, const CommitOptions& options) {
  const fs::path partial = partial_folder(folder, options.step, options.run_id);
  const fs::path whole = folder / checkpoint_name(options.step);
  CheckpointManifest manifest{options.step, options.run, {}, options.run_id};
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) {
    const fs::path note = partial / note_name(rank);
    manifest.files.push_back(parse_stored_file(read_text_file(note, kManifestLimits), note.string()));
  }
  SyncedFile file(partial / kManifest);
  file.append(manifest_text(manifest));
  file.sync();
  std::error_code ignored;
  for (std::int64_t rank = 0; rank < options.ranks; ++rank) fs::remove(partial / note_name(rank), ignored);
  sync_folder(partial);
  rename_synced(partial, whole);
  const std::vector<std::int64_t> steps = checkpoints_in(folder);
  for (std::size_t i = options.keep; i < steps.size(); ++i) {
    remove_checkpoint(folder, steps[i]);
  }
  return manifest.bytes();
}

// Two ranks that do it at once find files gone under their hands, and stop; then once more.
void remove_partial(const fs::path& folder, std::int64_t step, const std::string& run_id) {
  constexpr int kTries = 5;
  const fs::path partial = partial_folder(folder, step, run_id);
  std::error_code ignored;
  for (int i = 0; i < kTries && is_name_taken(partial); ++i) fs::remove_all(partial, ignored);
}

void remove_partials(const fs::path& folder) {
  for (const std::string& name : names_in(folder)) {
    std::error_code ignored;
    if (name.starts_with(kPartialPrefix) && name.ends_with(kPartialSuffix)) fs::remove_all(folder / name, ignored);
  }
}

std::string set_aside(const fs::path& folder, std::int64_t step) {
  std::string name = fmt::format("bad-{}", checkpoint_name(step));
  for (int i = 2; is_name_taken(folder / name); ++i) name = fmt::format("bad-{}-{}", checkpoint_name(step), i);
  rename_synced(folder / checkpoint_name(step), folder / name);
  return name;
}

}  // namespace weft
