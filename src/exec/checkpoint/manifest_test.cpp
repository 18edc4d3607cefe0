#include "exec/checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include "base/test_folder.hpp"

namespace weft {
namespace {

CheckpointManifest example() {
  CheckpointManifest manifest{7, R"({"seed":3,"model":{"layers":2}})", {}};
  manifest.files.push_back({"rank-00000.safetensors",
                            100,
                            0xFFFFFFFF,
                            {{"layers.0.qkv.weight", TensorKind::second_moment, {2, 4}, {0, 8}, {0, 16}, 20}}});
  manifest.files.push_back(
      {"rank-00001.safetensors", 64, 1, {{"final_norm.weight", TensorKind::weight, {0, 8}, {0, 1}, {3, 5}, 40}}});
  return manifest;
}

TEST(Manifest, SaysAgainWhatWasWritten) {
  const CheckpointManifest manifest = example(), again = parse_manifest(manifest_text(manifest), "m");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.run, manifest.run);
  EXPECT_EQ(again.files, manifest.files);
  EXPECT_EQ(again.bytes(), 164);
  EXPECT_EQ(parse_stored_file(stored_file_text(manifest.files[0]), "m"), manifest.files[0]);
}

TEST(Manifest, NamesPiecesByWhatTheyHold) {
  const CheckpointManifest manifest = example();
  EXPECT_EQ(manifest.files[0].pieces[0].name(), "second_moment/layers.0.qkv.weight[2:4,0:8]");
  EXPECT_EQ(manifest.files[1].pieces[0].name(), "weight/final_norm.weight[0:8,0:1][3:5]");
}

TEST(Manifest, NoticesEveryBitThatFlips) {
  const std::string text = manifest_text(example());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_NE(test::error_of([&] { parse_manifest(changed, "m"); }), "") << "byte " << i << ", bit " << bit;
    }
  }
}

TEST(Manifest, NoticesEveryTruncation) {
  const std::string text = manifest_text(example());
  for (std::size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_EQ(test::error_of([&] { parse_manifest(text.substr(0, length), "m"); }), "m: is no JSON object");
  }
}

TEST(Manifest, RefusesPiecesOutsideTheirFileAndFilesOutsideTheFolder) {
  const auto words = [](auto change) {
    CheckpointManifest manifest = example();
    change(manifest.files.front());
    return test::error_of([&] { parse_manifest(manifest_text(manifest), "m"); });
  };
  EXPECT_EQ(words([](StoredFile& file) { file.bytes = 84; }), "");  // 20 + 16 floats
  EXPECT_EQ(words([](StoredFile& file) { file.bytes = 83; }),
            "m: second_moment/layers.0.qkv.weight[2:4,0:8] does not lie within the 83 bytes of rank-00000.safetensors");
  EXPECT_EQ(words([](StoredFile& file) { file.pieces[0].offset = 36; }), "");  // 36 + 64 bytes
  EXPECT_NE(words([](StoredFile& file) { file.pieces[0].offset = 40; }), "");
  EXPECT_NE(words([](StoredFile& file) { file.pieces[0].offset = 22; }), "");
  EXPECT_NE(words([](StoredFile& file) { file.pieces[0].offset = 104; }), "");
  EXPECT_EQ(words([](StoredFile& file) { file.name = "../../etc/passwd"; }), "m: '../../etc/passwd' is no file");
}

}  // namespace
}  // namespace weft
