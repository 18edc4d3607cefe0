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
  manifest.run_id = "0123456789abcdef0123456789abcdef";
  return manifest;
}

TEST(Manifest, SaysAgainWhatWasWritten) {
  const CheckpointManifest manifest = example(), again = parse_manifest(manifest_text(manifest), "m");
  EXPECT_EQ(again.step, 7);
  EXPECT_EQ(again.run, manifest.run);
  EXPECT_EQ(again.files, manifest.files);
  EXPECT_EQ(again.run_id, manifest.run_id);
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
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "..", ".", "", "rank-0/../../x", "manifest.json"}) {
    EXPECT_EQ(words([&](StoredFile& file) { file.name = name; }), fmt::format("m: '{}' is no shard's name", name));
  }
  EXPECT_EQ(words([](StoredFile& file) { file.name = "rank-00001.safetensors"; }),
            "m: names rank-00001.safetensors twice");
}

// As written by a Weft that knew no ids of runs.
TEST(Manifest, OfVersionOneIsReadWithoutAnId) {
  CheckpointManifest old = example();
  old.run_id.clear();
  const std::string text = manifest_text(old);
  EXPECT_TRUE(text.starts_with(R"({"weft_checkpoint":1,"step":7,)")) << text;
  EXPECT_EQ(parse_manifest(text, "m").run_id, "");
  EXPECT_EQ(parse_manifest(text, "m").files, old.files);
}

TEST(Manifest, RefusesAnIdThatIsNone) {
  for (const char* id : {"0123", "0123456789ABCDEF0123456789ABCDEF", "../456789abcdef0123456789abcdef00"}) {
    CheckpointManifest manifest = example();
    manifest.run_id = id;
    EXPECT_EQ(test::error_of([&] { parse_manifest(manifest_text(manifest), "m"); }),
              fmt::format("m: run_id '{}' are not 32 hexadecimal digits", id));
  }
}

// The JSON library prints and compares by recursion: so deep a text would end the program.
TEST(Manifest, RefusesDeepNestingAndHugeNumbers) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(test::error_of([&] { parse_manifest(R"({"run":)" + deep, "m"); }), "m: is nested more than 64 levels deep");
  const auto words = [](const std::string& file) { return test::error_of([&] { parse_stored_file(file, "m"); }); };
  EXPECT_NE(words(R"({"name":"rank-0","bytes":-4,"crc32":0,"pieces":[]})"), "");
  EXPECT_NE(words(R"({"name":"rank-0","bytes":18446744073709551615,"crc32":0,"pieces":[]})"), "");
  EXPECT_EQ(words(R"({"name":"rank-0","bytes":4,"crc32":4294967296,"pieces":[]})"), "m: 4294967296 is no CRC-32");
  EXPECT_EQ(words(R"({"name":"rank-0","bytes":9223372036854775807,"crc32":0,"pieces":[]})"), "");
  CheckpointManifest manifest{1, "", {{"rank-0", INT64_MAX, 0, {}}, {"rank-1", INT64_MAX, 0, {}}}};
  EXPECT_EQ(test::error_of([&] { manifest.bytes(); }), "a checkpoint: the size does not fit in 63 bits");
}

}  // namespace
}  // namespace weft
