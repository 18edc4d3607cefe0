#include "exec/checkpoint/run_identity.hpp"

#include <gtest/gtest.h>

#include "exec/checkpoint/crc32.hpp"
#include "graph/test_shapes.hpp"

namespace weft {
namespace {

struct Training {
  Transformer model = test::small_gpt_shape();
  Layout layout{.global_batch = 8, .seq = 16};
  TrainSettings settings;
  std::shared_ptr<const Corpus> corpus = Corpus::generate(1, 4096);
  std::string identity() const { return run_identity(model, layout, settings, *corpus); }
};

template <class Change>
std::string conflict(const Change& change) {
  Training here;
  change(here);
  return identity_conflict(Training().identity(), here.identity());
}

TEST(RunIdentity, NamesWhatDiffersWithBothValues) {
  EXPECT_EQ(conflict([](Training&) {}), "");
  EXPECT_EQ(conflict([](Training& s) { s.model.layers = 4; }), "model layers is 3 there, 4 here");
  EXPECT_EQ(conflict([](Training& s) { s.model.tied_embeddings = false; }),
            "model tied_embeddings is true there, false here");
  EXPECT_EQ(conflict([](Training& s) { s.settings.optimizer = Optimizer::sgd; }),
            "optimizer name is \"adam\" there, \"sgd\" here");
  EXPECT_EQ(conflict([](Training& s) { s.model.qk_norm = true; }), "model qk_norm is null there, true here");
  Training normed;
  normed.model.qk_norm = true;
  EXPECT_EQ(identity_conflict(normed.identity(), Training().identity()), "model qk_norm is true there, null here");
  EXPECT_EQ(conflict([](Training& s) { s.settings.seed = 7; }), "seed is 1 there, 7 here");
  EXPECT_EQ(conflict([](Training& s) { s.layout.global_batch = 16; }), "global_batch is 8 there, 16 here");
  EXPECT_EQ(conflict([](Training& s) { s.layout.seq = 32; }), "seq is 16 there, 32 here");
  EXPECT_EQ(conflict([](Training& s) { s.model.dropout.hidden = 0.5; }), "dropout hidden is 0.1 there, 0.5 here");
  EXPECT_TRUE(conflict([](Training& s) { s.layout.dropout = false; }).ends_with(" there, null here"));
  EXPECT_EQ(conflict([](Training& s) { s.corpus = Corpus::generate(1, 4097); }), "data bytes is 4096 there, 4097 here");
  EXPECT_TRUE(conflict([](Training& s) { s.corpus = Corpus::generate(2, 4096); }).starts_with("data crc32 is "));
}

TEST(RunIdentity, LetsLayoutNameAndRatesChange) {
  EXPECT_EQ(conflict([](Training& s) { s.layout.tp = 2, s.layout.zero = 3, s.layout.pp = 2; }), "");
  EXPECT_EQ(conflict([](Training& s) { s.model.name = "another"; }), "");
  const std::string plain = Training().identity(), with_ddp = with_policy(plain, "ddp");
  EXPECT_EQ(policy_of(plain), "");
  EXPECT_EQ(policy_of(with_ddp), "ddp");
  EXPECT_EQ(identity_conflict(with_ddp, with_policy(plain, "fsdp")), "");
  Training here;
  EXPECT_TRUE(identity_changes(Training().identity(), here.identity()).empty());
  here.settings.adam.learning_rate = 0.5;
  here.layout.clip_grad = 1;
  EXPECT_EQ(identity_changes(Training().identity(), here.identity()),
            (std::vector<std::string>{"optimizer lr is 0.5, was 0.001", "clip_grad is 1.0, was 0.0"}));
}

// Momentum that was never kept cannot be gone on with.
TEST(RunIdentity, KeepsMomentum) {
  Training before, here;
  before.settings.optimizer = here.settings.optimizer = Optimizer::sgd;
  here.settings.sgd.momentum = 0.5;
  EXPECT_EQ(identity_conflict(before.identity(), here.identity()), "optimizer momentum is 0.0 there, 0.5 here");
}

TEST(ChecksumOfText, LooksAtTheEndsOfALongText) {
  constexpr std::size_t kLong = (std::size_t{65} << 20) + 3;
  std::vector<std::uint8_t> text(kLong, 'a');
  EXPECT_EQ(checksum_of_text(std::span(text).first(1000)), crc32(text.data(), 1000));
  const std::uint32_t before = checksum_of_text(text);
  text.back() = 'b';
  // 63 x (its integer share of the rest) leaves less than 63 bytes behind the last sample.
  text[kLong - 64] = 'b';
  EXPECT_NE(checksum_of_text(text), before);
  text.assign(kLong, 'a');
  text.front() = 'b';
  EXPECT_NE(checksum_of_text(text), before);
}

}  // namespace
}  // namespace weft
