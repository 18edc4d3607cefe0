// The folder of checkpoints, with files that a test can break.
#include "exec/checkpoint/checkpoint_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "base/test_folder.hpp"
#include "exec/checkpoint/crc32.hpp"
#include "exec/checkpoint/synced_file.hpp"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::error_of, test::ScratchFolder;

constexpr std::int64_t kRanks = 2;

std::string contents_of(std::int64_t rank) {
  return std::string(4096, static_cast<char>('a' + rank));
}

void write_shards(const fs::path& folder, std::int64_t step) {
  const fs::path partial = partial_folder(folder, step);
  make_checkpoint_folder(partial);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    SyncedFile file(partial / shard_name(rank));
    file.append(contents_of(rank));
    file.sync();
    EXPECT_EQ(file.bytes(), 4096);
    announce_shard(partial, rank, {shard_name(rank), file.bytes(), file.checksum(), {}});
  }
}

void save(const fs::path& folder, std::int64_t step, std::int64_t keep = 100) {
  write_shards(folder, step);
  EXPECT_EQ(put_together(folder, {step, R"({"seed":1})", kRanks, keep}), kRanks * 4096);
}

using Steps = std::vector<std::int64_t>;

TEST(CheckpointFolder, HasACheckpointOnlyWhenItIsWhole) {
  const ScratchFolder scratch("ckpt_whole");
  EXPECT_EQ(checkpoints_in(scratch.path() / "missing"), Steps{});
  write_shards(scratch.path(), 100);
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{});
  put_together(scratch.path(), {100, R"({"seed":1})", kRanks, 2});
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{100});
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 100)));
  const CheckpointManifest manifest = read_checkpoint(scratch.path() / "step-00000100");
  EXPECT_EQ(manifest.step, 100);
  EXPECT_EQ(manifest.run, R"({"seed":1})");
  const std::string first = contents_of(0);
  ASSERT_EQ(manifest.files.size(), 2U);
  EXPECT_EQ(manifest.files[0].checksum, crc32(first.data(), first.size()));
  // Nothing else is left in it.
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path() / "step-00000100"), fs::directory_iterator()), 3);
}

TEST(CheckpointFolder, IsNotPutTogetherWithoutAllShards) {
  const ScratchFolder scratch("ckpt_missing_note");
  save(scratch.path(), 1);
  write_shards(scratch.path(), 2);
  fs::remove(partial_folder(scratch.path(), 2) / "rank-00001.json");
  EXPECT_NE(error_of([&] {
              put_together(scratch.path(), {2, {}, kRanks, 1});
            }).find("rank-00001.json: cannot be read"),
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
      std::string text = contents_of(1);
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
  remove_partial(scratch.path(), 6);
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 6)));
  EXPECT_TRUE(fs::exists(partial_folder(scratch.path(), 9)));
  remove_partials(scratch.path());
  EXPECT_FALSE(fs::exists(partial_folder(scratch.path(), 9)));
  EXPECT_EQ(read_checkpoint(scratch.path() / "step-00000003").step, 3);
}

TEST(CheckpointFolder, SetsABrokenOneAsideAndLosesNothing) {
  const ScratchFolder scratch("ckpt_aside");
  save(scratch.path(), 3);
  EXPECT_EQ(set_aside(scratch.path(), 3), "bad-step-00000003");
  EXPECT_EQ(checkpoints_in(scratch.path()), Steps{});
  EXPECT_EQ(read_checkpoint(scratch.path() / "bad-step-00000003").step, 3);
  save(scratch.path(), 3);  // its name is free again
}

// Files of this process cannot grow beyond a limit: as on a full disk, write() fails in the middle.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : old_action_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_action_);
  }

 private:
  void (*old_action_)(int);
  rlimit old_{};
};

TEST(SyncedFile, SaysWhichFileCannotGrow) {
  const ScratchFolder scratch("ckpt_full");
  const std::string path = scratch.file("shard");
  const std::vector<std::byte> data((1 << 20) + 1);
  const SizeLimit limit(1 << 20);
  EXPECT_EQ(error_of([&] {
              SyncedFile file(path);
              file.append(data);
            }),
            path + ": cannot be written: File too large");
}

}  // namespace
}  // namespace weft
