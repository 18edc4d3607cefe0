#include "exec/checkpoint/shard_writer.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "exec/checkpoint/checkpoint_folder.hpp"
#include "exec/checkpoint/shard_check.hpp"
#include "exec/checkpoint/synced_file.hpp"

namespace weft {

namespace {

// Returns the elements of a matrix as vectors: one where its rows follow each other without a gap.
std::vector<Vector> vectors_of(const Matrix& x) {
  if (x.row_stride == x.columns * size_of(x.data.type)) return {{x.data, x.rows * x.columns}};
  std::vector<Vector> rows;
  for (std::int64_t row = 0; row < x.rows; ++row) rows.push_back(x.row(row));
  return rows;
}

}  // namespace

ShardWriter::ShardWriter(const RankMemory& memory, std::vector<OwnedPiece> pieces, std::size_t items, std::int64_t rank,
                         std::string run_id)
    : memory_(&memory), rank_(rank), run_id_(std::move(run_id)), by_item_(items) {
  constexpr std::int64_t kLongestStep = std::numeric_limits<std::int64_t>::max();
  shard_.name = shard_name(rank);
  for (const OwnedPiece& piece : pieces) headings_.push_back({piece.stored.name(), piece.shape});
  opening_bytes_ = safetensors_opening(headings_, shard_metadata(run_id_, kLongestStep, rank)).size();
  for (OwnedPiece& piece : pieces) {
    piece.stored.offset = static_cast<std::int64_t>(opening_bytes_ + elements_ * sizeof(float));
    for (const Vector& from : vectors_of(piece.source)) {
      by_item_[piece.item].push_back({from, elements_});
      elements_ += static_cast<std::size_t>(from.size);
    }
    shard_.pieces.push_back(std::move(piece.stored));
  }
  shard_.bytes = static_cast<std::int64_t>(opening_bytes_ + elements_ * sizeof(float));
  copies_ = std::make_unique<float[]>(elements_);  // touched now, not while it trains
}

void ShardWriter::copy(std::size_t item) {
  for (const Copy& one : by_item_[item])
    memory_->read(one.from, {copies_.get() + one.to, static_cast<std::size_t>(one.from.size)});
}

void ShardWriter::write(const std::filesystem::path& partial, std::int64_t step) const {
  make_partial_folder(partial);
  SyncedFile file(partial / shard_.name);
  file.append(safetensors_opening(headings_, shard_metadata(run_id_, step, rank_), opening_bytes_));
  file.append(std::as_bytes(std::span(copies_.get(), elements_)));
  file.sync();
  StoredFile shard = shard_;
  shard.checksum = file.checksum();
  announce_shard(partial, rank_, shard);
  sync_folder(partial);
}

}  // namespace weft
