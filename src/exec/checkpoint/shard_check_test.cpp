// Headers and manifests that disagree though every checksum is right, and pieces that do not make a whole.
#include "exec/checkpoint/shard_check.hpp"

#include <gtest/gtest.h>

#include "base/test_folder.hpp"
#include "exec/checkpoint/test_checkpoints.hpp"

namespace weft {
namespace {

using test::error_of;

const std::string kId = "0123456789abcdef0123456789abcdef";

// A shard with a matrix of 2 x 3 and a vector of 4, and what a manifest says of it.
struct Shard {
  std::vector<TensorHeading> headings{{"weight/a[0:2,0:3]", {2, 3}}, {"weight/b[0:4,0:1]", {4}}};
  CheckpointManifest manifest{5, {}, {}, kId};

  Shard() {
    StoredFile file{shard_name(0), 0, 0, {}};
    const auto begin = std::ssize(safetensors_opening(headings, shard_metadata(kId, 5, 0)));
    file.pieces = {{"a", TensorKind::weight, {0, 2}, {0, 3}, {0, 6}, begin},
                   {"b", TensorKind::weight, {0, 4}, {0, 1}, {0, 4}, begin + 24}};
    manifest.files = {file};
  }
  StoredFile& file() { return manifest.files.front(); }

  // What is said of it, after "FOLDER: rank-00000.safetensors".
  std::string words() const {
    const test::ScratchFolder folder("shard_check");
    std::string text = safetensors_opening(headings, shard_metadata(kId, 5, 0));
    text.resize(text.size() + 40);
    folder.write(shard_name(0), text);
    const std::string words = error_of([&] { check_shard(folder.path(), manifest, manifest.files.front()); });
    const std::string place = fmt::format("{}: {}", folder.path().string(), shard_name(0));
    EXPECT_TRUE(words.empty() || words.starts_with(place)) << words;
    return words.empty() ? "" : words.substr(place.size());
  }
};

TEST(ShardCheck, ComparesNamesShapesAndPlaces) {
  EXPECT_EQ(Shard().words(), "");
  Shard other_name;
  other_name.headings[1].name = "weight/c[0:4,0:1]";
  EXPECT_EQ(other_name.words(), " has no weight/b[0:4,0:1], or the manifest names it twice");
  Shard other_shape;
  other_shape.headings[0].shape = {3, 2};
  EXPECT_EQ(other_shape.words(), ": weight/a[0:2,0:3] has another shape than the manifest says");
  Shard swapped;  // only the places tell
  std::swap(swapped.headings[0], swapped.headings[1]);
  EXPECT_NE(swapped.words().find(": weight/a[0:2,0:3] begins at byte "), std::string::npos) << swapped.words();
  Shard other_place;
  other_place.file().pieces[1].offset += 4;
  const std::int64_t at = other_place.file().pieces[1].offset;
  EXPECT_EQ(other_place.words(),
            fmt::format(": weight/b[0:4,0:1] begins at byte {}, the manifest says {}", at - 4, at));
  Shard more;
  more.file().pieces.pop_back();
  EXPECT_EQ(more.words(), " has weight/b[0:4,0:1], which the manifest does not name");
  Shard twice;
  twice.file().pieces[1] = twice.file().pieces[0];
  EXPECT_EQ(twice.words(), " has no weight/a[0:2,0:3], or the manifest names it twice");
}

TEST(ShardCheck, ReadsShardsOfVersionOne) {
  Shard old;
  old.manifest.run_id.clear();  // nobody said whose the shards are
  EXPECT_EQ(old.words(), "");
}

// One file that holds every tensor of the model whole.
CheckpointManifest whole_manifest(const Transformer& model) {
  CheckpointManifest manifest{1, {}, {{shard_name(0), 0, 0, {}}}, kId};
  for (const auto& [name, shape] : test::shapes_of(model)) {
    const auto size = static_cast<std::int64_t>(test::size_of(shape)), rows = shape.front();
    manifest.files[0].pieces.push_back({name, TensorKind::weight, {0, rows}, {0, size / rows}, {0, size}, 0});
  }
  return manifest;
}

std::string cover_words(const Transformer& model, const CheckpointManifest& manifest) {
  return error_of([&] { check_cover("c", manifest, model, {TensorKind::weight}); });
}

TEST(CoverCheck, WantsEveryElementOnce) {
  const Transformer model = test::small_gpt(2);
  const CheckpointManifest whole = whole_manifest(model);
  EXPECT_EQ(cover_words(model, whole), "");
  for (std::size_t i = 0; i < whole.files[0].pieces.size(); ++i) {
    const StoredPiece& piece = whole.files[0].pieces[i];
    const std::string of = fmt::format("{} elements of {} weight", piece.elements.size(), piece.tensor);
    const auto changed = [&](auto change) {
      CheckpointManifest manifest = whole;
      change(manifest.files[0].pieces);
      return cover_words(model, manifest);
    };
    using Pieces = std::vector<StoredPiece>;
    EXPECT_EQ(changed([&](Pieces& p) { p.erase(p.begin() + static_cast<std::ptrdiff_t>(i)); }), "c: has 0 of " + of);
    EXPECT_EQ(changed([&](Pieces& p) { p[i].elements.end -= 1; }),
              fmt::format("c: has {} of {}", piece.elements.size() - 1, of));
    EXPECT_NE(changed([&](Pieces& p) { p.push_back(p[i]); }).find("twice"), std::string::npos);
    EXPECT_NE(changed([&](Pieces& p) { p[i].rows = {1, piece.rows.end + 1}; }).find("lies outside the tensor"),
              std::string::npos);
    // Two halves are a whole; twice the first half has as many elements, and is none.
    const std::int64_t half = piece.elements.size() / 2;
    if (2 * half != piece.elements.size()) continue;
    const auto halves = [&](ElementRange first, ElementRange second) {
      return changed([&](Pieces& p) {
        p.push_back(p[i]);
        p[i].elements = first;
        p.back().elements = second;
      });
    };
    EXPECT_EQ(halves({0, half}, {half, 2 * half}), "");
    EXPECT_NE(halves({0, half}, {0, half}).find("twice"), std::string::npos);
    EXPECT_NE(halves({0, half + 1}, {half, 2 * half - 1}).find("twice"), std::string::npos);
  }
}

// Rectangles that overlap: together they have as many elements as the tensor, but not its last column.
TEST(CoverCheck, NoticesRectanglesThatOverlap) {
  const Transformer model = test::small_gpt(2);
  CheckpointManifest manifest = whole_manifest(model);
  auto& pieces = manifest.files[0].pieces;
  const auto matrix = std::ranges::find(pieces, std::string("layers.0.qkv.weight"), &StoredPiece::tensor);
  ASSERT_NE(matrix, pieces.end());
  const std::int64_t rows = matrix->rows.size(), columns = matrix->columns.size(), half = columns / 2;
  const std::size_t i = matrix - pieces.begin();
  const auto with_second = [&](ElementRange first, ElementRange second) {
    CheckpointManifest cut = manifest;
    auto& parts = cut.files[0].pieces;
    parts.push_back(parts[i]);
    parts[i].columns = first;
    parts[i].elements = {0, rows * first.size()};
    parts.back().columns = second;
    parts.back().elements = {0, rows * second.size()};
    return cover_words(model, cut);
  };
  EXPECT_EQ(with_second({0, half}, {half, columns}), "");
  EXPECT_NE(with_second({0, half + 1}, {half, columns - 1}).find("twice"), std::string::npos);
}

}  // namespace
}  // namespace weft
