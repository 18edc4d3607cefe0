// The folder of a run's checkpoints: DIR/step-00000100 is whole from the moment it has that name.
//
// Shards are written to DIR/.step-00000100.RUN.partial, with the id of the run in its name, so that two runs never
// write to the same place; when all are on disk, one rank adds the manifest and renames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "exec/checkpoint/manifest.hpp"

namespace weft {

std::string checkpoint_name(std::int64_t step);  // "step-00000100"
std::string shard_name(std::int64_t rank);       // "rank-00003.safetensors"
std::filesystem::path partial_folder(const std::filesystem::path& folder, std::int64_t step, const std::string& run_id);
// Makes it, with missing parents. Throws Error where something else has its name, a link to a folder, say: nothing is
// written through that.
void make_partial_folder(const std::filesystem::path& partial);

// Steps with a checkpoint of that name, whole or not, the newest first. None where there is no such folder.
std::vector<std::int64_t> checkpoints_in(const std::filesystem::path& folder);

CheckpointManifest read_manifest(const std::filesystem::path& checkpoint);
// The manifest of a checkpoint whose files all have the sizes, checksums and contents that it says and are of the same
// run, step and rank. Throws Error naming what is wrong with which file. Reads everything.
CheckpointManifest read_checkpoint(const std::filesystem::path& checkpoint);

// A rank's word on its shard, which is on disk; read by put_together.
void announce_shard(const std::filesystem::path& partial, std::int64_t rank, const StoredFile& shard);

struct CommitOptions {
  std::int64_t step = 0;
  std::string run;  // of the manifest
  std::int64_t ranks = 1;
  std::int64_t keep = 2;
  std::string run_id = {};
};
// Makes a checkpoint of the shards of all ranks, then deletes all but the newest `keep`. Returns its bytes. Throws
// Error where it cannot; the older ones are still there then.
std::int64_t put_together(const std::filesystem::path& folder, const CommitOptions& options);

// What interrupted saves have left. Nothing is said where that fails: it is in nobody's way.
void remove_partial(const std::filesystem::path& folder, std::int64_t step, const std::string& run_id);
// Of all runs: only for who holds the folder's lock. A link is removed, not what it points to.
void remove_partials(const std::filesystem::path& folder);
// Out of the way of checkpoints to come, under a name that is free ("bad-step-00000100"), which it returns.
std::string set_aside(const std::filesystem::path& folder, std::int64_t step);

}  // namespace weft
