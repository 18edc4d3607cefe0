// Which training a checkpoint is of: what must be the same for a run to go on from it, and what may change.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/data/batches.hpp"
#include "exec/train_settings.hpp"
#include "graph/layout.hpp"

namespace weft {

// CRC-32 of a text, or of 64 of its MiB, evenly spread, where it has more.
std::uint32_t checksum_of_text(std::span<const std::uint8_t> text);

// JSON, as it stands in the manifest: model, optimizer, seed, global_batch, seq, data; layout for the reader.
std::string run_identity(const Transformer& model, const Layout& layout, const TrainSettings& settings,
                         const Corpus& corpus);
// The policy may change too; "" where none is named.
std::string with_policy(const std::string& identity, const std::string& policy);
std::string policy_of(const std::string& identity);

// What keeps a run from going on from a checkpoint, with both values; "" where nothing does.
std::string identity_conflict(const std::string& saved, const std::string& here);
// What may change and has, each in words: "lr is 0.0005, was 0.001".
std::vector<std::string> identity_changes(const std::string& saved, const std::string& here);

}  // namespace weft
