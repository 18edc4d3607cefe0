// The folder of checkpoints, with files that a test can break.
#include "exec/checkpoint/checkpoint_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/test_file_limits.hpp"
#include "base/test_folder.hpp"
#include "exec/checkpoint/crc32.hpp"
#include "exec/checkpoint/shard_check.hpp"
#include "exec/checkpoint/synced_file.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::error_of, test::ScratchFolder;

constexpr std::int64_t kRanks = 2;

constexpr std::int64_t kBytes = 4096;
const std::string kRun = "00112233445566778899aabbccddeeff", kOtherRun = "ffeeddccbbaa99887766554433221100";

std::string contents_of(std::int64_t rank, std::int64_t step, const std::string& run_id) {
  std::string text = safetensors_opening({}, shard_metadata(run_id, step, rank), kBytes);
  EXPECT_EQ(std::ssize(text), kBytes);
  return text;
}

void write_shards(const fs::path& folder, std::int64_t step, const std::string& run_id = kRun) {
  const fs::path partial = partial_folder(folder, step, run_id);
  make_partial_folder(partial);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    SyncedFile file(partial / shard_name(rank));
    file.append(contents_of(rank, step, run_id));
    file.sync();
    EXPECT_EQ(file.bytes(), kBytes);
    announce_shard(partial, rank, {shard_name(rank), file.bytes(), file.checksum(), {}});
  }
}

void save(const fs::path& folder, std::int64_t step, std::int64_t keep = 100, const std::string& run_id = kRun) {
  write_shards(folder, step, run_id);
  EXPECT_EQ(put_together(folder, {step, R"({"seed":1})", kRanks, keep, run_id}), kRanks * kBytes);
}

using Steps = std::vector<std::int64_t>;

TEST(CheckpointFolder, HasACheckpointOnlyWhenItIsWhole) {
  const ScratchFolder scratch("ckpt_whole");
  EXPECT_EQ(checkpoints_in(scratch.path() / "missing"), Steps{});
  write_shards(scratch.path(), 100);
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{});
  put_together(scratch.path(), {100, R"({"seed":1})", kRanks, 2, kRun});
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{100});
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 100, kRun)));
  const CheckpointManifest manifest = read_checkpoint(scratch.path() / "step-00000100");
  EXPECT_EQ(manifest.step, 100);
  EXPECT_EQ(manifest.run, R"({"seed":1})");
  EXPECT_EQ(manifest.run_id, kRun);
  const std::string first = contents_of(0, 100, kRun);
  ASSERT_EQ(manifest.files.size(), 2U);
  EXPECT_EQ(manifest.files[0].checksum, crc32(first.data(), first.size()));
  // Nothing else is left in it.
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path() / "step-00000100"), fs::directory_iterator()), 3);
}

TEST(CheckpointFolder, IsNotPutTogetherWithoutAllShards) {
  const ScratchFolder scratch("ckpt_missing_note");
  save(scratch.path(), 1);
  write_shards(scratch.path(), 2);
  fs::remove(partial_folder(scratch.path(), 2, kRun) / "rank-00001.json");
  EXPECT_NE(
      error_of([&] { put_together(scratch.path(), {2, {}, kRanks, 1, kRun}); }).find("rank-00001.json: cannot be read"),
      std::string::npos);
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{1});
}

TEST(CheckpointFolder, KeepsTheNewest) {
  const ScratchFolder scratch("ckpt_keep");
  scratch.write("step-1", "no checkpoint's name");
  for (const std::int64_t step : {9, 10, 99999999, 100000000, 100}) save(scratch.path(), step);
  EXPECT_EQ(checkpoints_in(scratch.path()), (Steps{100000000, 99999999, 100, 10, 9}));
  save(scratch.path(), 100000001, 2);
  EXPECT_EQ(checkpoints_in(scratch.path()), (Steps{100000001, 100000000}));
  EXPECT_TRUE(fs::exists(scratch.file("step-1")));
}

TEST(CheckpointFolder, NamesWhatIsBroken) {
  const ScratchFolder scratch("ckpt_broken");
  const fs::path whole = scratch.path() / "step-00000005";
  const auto words = [&](auto damage) {
    fs::remove_all(whole);
    save(scratch.path(), 5);
    damage();
    return error_of([&] { read_checkpoint(whole); });
  };
  const std::string place = whole.string(), shard = whole / "rank-00001.safetensors";
  EXPECT_EQ(words([] {}), "");
  EXPECT_EQ(words([&] { fs::resize_file(shard, 1000); }), place + ": rank-00001.safetensors has 1000 of 4096 bytes");
  EXPECT_EQ(words([&] { fs::resize_file(shard, 5000); }), place + ": rank-00001.safetensors has 5000 of 4096 bytes");
  EXPECT_EQ(words([&] { fs::remove(shard); }), place + ": rank-00001.safetensors is missing");
  EXPECT_EQ(words([&] { fs::remove(whole / "manifest.json"); }), place + ": manifest.json is missing");
  EXPECT_EQ(words([&] { fs::resize_file(whole / "manifest.json", 60); }), place + ": manifest.json: is no JSON object");
  for (const std::size_t at : {0, 4095}) {
    const std::string changed = words([&] {
      std::string text = contents_of(1, 5, kRun);
      text[at] ^= 1;
      std::ofstream(shard, std::ios::binary) << text;
    });
    EXPECT_TRUE(changed.starts_with(place + ": rank-00001.safetensors has changed since it was written")) << changed;
  }
}

TEST(CheckpointFolder, ClearsAwayWhatInterruptedSavesLeft) {
  const ScratchFolder scratch("ckpt_partial");
  save(scratch.path(), 3);
  write_shards(scratch.path(), 6);
  write_shards(scratch.path(), 9);
  remove_partial(scratch.path(), 6, kRun);
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 6, kRun)));
  EXPECT_TRUE(fs::exists(partial_folder(scratch.path(), 9, kRun)));
  remove_partials(scratch.path());
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 9, kRun)));
  EXPECT_EQ(read_checkpoint(scratch.path() / "step-00000003").step, 3);
}

TEST(CheckpointFolder, SetsABrokenOneAsideAndLosesNothing) {
  const ScratchFolder scratch("ckpt_aside");
  save(scratch.path(), 3);
  EXPECT_EQ(set_aside(scratch.path(), 3), "bad-step-00000003");
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{});
  EXPECT_EQ(read_checkpoint(scratch.path() / "bad-step-00000003").step, 3);
  save(scratch.path(), 3);  // its name is free again
  EXPECT_EQ(set_aside(scratch.path(), 3), "bad-step-00000003-2");
  EXPECT_EQ(read_checkpoint(scratch.path() / "bad-step-00000003").step, 3);
}

TEST(CheckpointFolder, KeepsTheShardsOfTwoRunsApart) {
  const ScratchFolder scratch("ckpt_two_runs");
  write_shards(scratch.path(), 5, kRun);
  write_shards(scratch.path(), 5, kOtherRun);
  put_together(scratch.path(), {5, {}, kRanks, 2, kRun});
  EXPECT_EQ(read_checkpoint(scratch.path() / "step-00000005").run_id, kRun);
  EXPECT_TRUE(fs::exists(partial_folder(scratch.path(), 5, kOtherRun) / shard_name(0)));
}

// Every file is as it was written and has the checksum that the manifest says; only whose it is differs.
TEST(CheckpointFolder, RefusesShardsOfAnotherRunStepOrRank) {
  const ScratchFolder scratch("ckpt_mixed");
  const fs::path whole = scratch.path() / "step-00000005", partial = partial_folder(scratch.path(), 5, kRun);
  const auto words = [&](const std::string& shard) {
    fs::remove_all(whole);
    write_shards(scratch.path(), 5);
    std::ofstream(partial / shard_name(1), std::ios::binary) << shard;
    announce_shard(partial, 1, {shard_name(1), kBytes, crc32(shard.data(), shard.size()), {}});
    put_together(scratch.path(), {5, {}, kRanks, 2, kRun});
    return error_of([&] { read_checkpoint(whole); });
  };
  const std::string place = whole.string() + ": rank-00001.safetensors";
  EXPECT_EQ(words(contents_of(1, 5, kRun)), "");
  EXPECT_EQ(words(contents_of(1, 5, kOtherRun)),
            place + " is of run " + kOtherRun + ", the manifest of run " + kRun + ": shards of two runs are mixed");
  EXPECT_EQ(words(contents_of(1, 4, kRun)), place + " is of step 4, the manifest of step 5");
  EXPECT_EQ(words(contents_of(0, 5, kRun)), place + " is the shard of rank 0");
  EXPECT_EQ(words(safetensors_opening({}, {}, kBytes)),
            place + " is of run none, the manifest of run " + kRun + ": shards of two runs are mixed");
}

TEST(CheckpointFolder, ReadsNoSpecialFiles) {
  const ScratchFolder scratch("ckpt_special");
  const fs::path whole = scratch.path() / "step-00000005";
  const std::string manifest = whole / "manifest.json", shard = whole / shard_name(1);
  const auto words = [&](const std::string& file, auto replace) {
    fs::remove_all(whole);
    save(scratch.path(), 5);
    fs::remove(file);
    replace();
    return error_of([&] { read_checkpoint(whole); });
  };
  for (const std::string& file : {manifest, shard}) {
    EXPECT_EQ(words(file, [&] { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); }), file + ": is a named pipe, not a file");
    EXPECT_EQ(words(file, [&] { fs::create_symlink("/dev/zero", file); }), file + ": is a device, not a file");
    EXPECT_EQ(words(file, [&] { fs::create_directory(file); }), file + ": is a folder, not a file");
  }
  EXPECT_EQ(words(manifest,
                  [&] {
                    std::ofstream(manifest) << "{";
                    fs::resize_file(manifest, std::uintmax_t{1} << 40);
                  }),
            manifest + ": has 1099511627776 bytes; at most 536870912 are read");
}

TEST(CheckpointFolder, NeitherWritesNorDeletesThroughALink) {
  const ScratchFolder scratch("ckpt_link"), elsewhere("ckpt_link_target");
  const fs::path partial = partial_folder(scratch.path(), 5, kRun);
  elsewhere.write("precious", "contents");
  fs::create_directory_symlink(elsewhere.path(), partial);
  EXPECT_EQ(error_of([&] { make_partial_folder(partial); }), partial.string() + ": cannot be created: File exists");
  remove_partial(scratch.path(), 5, kRun);
  EXPECT_FALSE(fs::is_symlink(partial));
  fs::create_directory_symlink(elsewhere.path() / "nowhere", partial);
  remove_partial(scratch.path(), 5, kRun);
  EXPECT_FALSE(fs::is_symlink(partial));
  fs::create_directory_symlink(elsewhere.path(), partial);
  remove_partials(scratch.path());
  EXPECT_FALSE(fs::is_symlink(partial));
  EXPECT_EQ(elsewhere.read("precious"), "contents");
  fs::create_symlink(elsewhere.file("precious"), scratch.file("shard"));
  EXPECT_NE(error_of([&] { SyncedFile file(scratch.file("shard")); }), "");
  EXPECT_EQ(elsewhere.read("precious"), "contents");
}

TEST(SyncedFile, SaysWhichFileCannotGrow) {
  const ScratchFolder scratch("ckpt_full");
  const std::string path = scratch.file("shard");
  const std::vector<std::byte> data((1 << 20) + 1);
  const test::FileSizeLimit limit(1 << 20);
  EXPECT_EQ(error_of([&] {
              SyncedFile file(path);
              file.append(data);
            }),
            path + ": cannot be written: File too large");
}

}  // namespace
}  // namespace weft
