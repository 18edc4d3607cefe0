// Which training a checkpoint is of: what must be the same for a run to go on from it, and what may change.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "exec/data/batches.hpp"
#include "exec/train_settings.hpp"
#include "graph/layout.hpp"

namespace weft {

// CRC-32 of a text, or of 64 of its MiB, evenly spread, where it has more.
std::uint32_t checksum_of_text(std::span<const std::uint8_t> text);

nlohmann::ordered_json run_identity(const Transformer& model, const Layout& layout, const TrainSettings& settings,
                                    const Corpus& corpus);

// What keeps a run from going on from a checkpoint, with both values; "" where nothing does.
std::string identity_conflict(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& here);
// What may change and has, each in words: "lr is 0.0005, was 0.001".
std::vector<std::string> identity_changes(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& here);

}  // namespace weft
