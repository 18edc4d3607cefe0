// `weft export`: what it writes, what it says is left out, and what it refuses.
#include <gtest/gtest.h>

#include "app/files.hpp"
#include "app/test_cli.hpp"

namespace weft {
namespace {

TEST(Export, WritesTheFileAndListsWhatItCannotSay) {
  const ScratchFolder folder("export");
  ASSERT_EQ(
      weft_cli("plan --model gpt2 --cluster dgx-a100:2 --global-batch 32 --policy ddp --out " + folder.path()).code,
      kOk);
  const std::string plan = folder.file("plan.json"), file = folder.file("flags.sh");
  const CliResult printed = weft_cli("export " + plan + " --to megatron");
  EXPECT_EQ(printed.code, kOk) << printed.err;
  EXPECT_PRED2(contains, printed.out, "--overlap-grad-reduce");
  EXPECT_PRED2(contains, printed.err, "weft: megatron: left out: how collectives are carried out");
  const CliResult written = weft_cli("export " + plan + " --to megatron -o " + file);
  EXPECT_EQ(written.out, "Written: " + file + "\n");
  EXPECT_EQ(read_text_file(file), printed.out);
}

TEST(Export, WarnsOfWhatUsersMiss) {
  const ScratchFolder folder("export_warnings");
  ASSERT_EQ(weft_cli("plan --model gpt2 --cluster dgx-a100:2 --tp 2 --pp 2 --zero 1 --global-batch 32 --policy "
                     "megatron-param --out " +
                     folder.path())
                .code,
            kOk);
  const CliResult result = weft_cli("export " + folder.file("plan.json") + " --to megatron");
  EXPECT_PRED2(contains, result.out, "export CUDA_DEVICE_MAX_CONNECTIONS=1");
  EXPECT_PRED2(contains, result.err, "CUDA_DEVICE_MAX_CONNECTIONS=1 is asserted");
  EXPECT_PRED2(contains, result.err, "first pipeline stage only");
  const CliResult mindspeed = weft_cli("export " + folder.file("plan.json") + " --to mindspeed");
  EXPECT_PRED2(contains, mindspeed.out, "--overlap-param-gather");
  EXPECT_PRED2(contains, mindspeed.err, "--reuse-fp32-param does not go with --overlap-param-gather");
}

TEST(Export, ShardedStreamsNeedSeveralConnections) {
  const ScratchFolder folder("export_connections");
  ASSERT_EQ(
      weft_cli("plan --model gpt2 --cluster dgx-a100:1 --tp 2 --zero 3 --policy fsdp --out " + folder.path()).code,
      kOk);
  const CliResult result = weft_cli("export " + folder.file("plan.json") + " --to fsdp2");
  EXPECT_PRED2(contains, result.err, "CUDA_DEVICE_MAX_CONNECTIONS above 1");
}

TEST(Export, AnUnsafePlanIsNotExported) {
  const ScratchFolder folder("export_unsafe");
  ASSERT_EQ(weft_cli("plan --model gpt2 --cluster dgx-a100:1 --policy ddp --out " + folder.path()).code, kOk);
  std::string text = read_text_file(folder.file("plan.json"));
  const std::size_t update = text.find(",[2,-1]");
  ASSERT_NE(update, std::string::npos);
  text.erase(update, 7);  // the update is never issued
  const CliResult result = weft_cli("export " + folder.write("changed.json", text) + " --to megatron");
  EXPECT_EQ(result.code, kAnswerIsNo) << result.out << result.err;
  EXPECT_PRED2(contains, result.out, "not safe");
}

TEST(Export, MistakesAreNamed) {
  const ScratchFolder folder("export_mistakes");
  EXPECT_PRED2(contains, weft_cli("export").err, "name the plan file");
  EXPECT_PRED2(contains, weft_cli("export plan.json").err, "--to: is missing");
  EXPECT_PRED2(contains, weft_cli("export plan.json --to deepsped").err, "did you mean 'deepspeed'");
  EXPECT_PRED2(contains, weft_cli("export " + folder.file("absent.json") + " --to ddp").err, "absent.json");
  EXPECT_PRED2(contains, weft_cli("export --help").out, "fsdp2");
}

}  // namespace
}  // namespace weft
