// Whether the files of a checkpoint belong together and hold what its manifest says.
#pragma once

#include <filesystem>
#include <vector>

#include "exec/checkpoint/manifest.hpp"
#include "exec/safetensors.hpp"
#include "model/transformer.hpp"

namespace weft {

// What a shard says of itself in its header, so that it cannot be taken for another's: the run, the step, the rank.
SafetensorsMetadata shard_metadata(const std::string& run_id, std::int64_t step, std::int64_t rank);

// Compares a shard's header with the manifest: whose it is, and name, shape and place of every piece. Throws Error
// naming the checkpoint, the shard and what differs.
void check_shard(const std::filesystem::path& checkpoint, const CheckpointManifest& manifest, const StoredFile& file);

// Every element of every tensor of the model is there once, of each of these kinds, and the diagonal of every factor of
// K-FAC's curvature, of which ranks may have had blocks. Throws Error that begins with
// `name` and names a tensor with elements that are missing, twice there, or outside it.
void check_cover(const std::string& name, const CheckpointManifest& manifest, const Transformer& model,
                 const std::vector<TensorKind>& kinds);

}  // namespace weft
