// A text made up as it is written: lines whose bytes are easy to guess one after another for who has learned letters,
// then words, then grammar (number agrees between noun and verb), then to copy, to count and to add.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string_view>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "exec/data/batches.hpp"

namespace weft {
namespace {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : key_(mix_bits(seed)) {}
  // In 0..sides-1. The bias of the remainder is below sides / 2^64.
  std::size_t roll(std::size_t sides) { return static_cast<std::size_t>(mix_bits(key_ + count_++) % sides); }
  // The smaller of two rolls: words have favourites, as in any language.
  std::size_t favourite(std::size_t sides) {
    const std::size_t a = roll(sides), b = roll(sides);
    return a < b ? a : b;
  }

 private:
  std::uint64_t key_;
  std::uint64_t count_ = 0;
};

constexpr std::array<std::string_view, 16> kNouns = {"cat",  "river", "child",  "stone", "horse", "garden",
                                                     "ship", "king",  "bird",   "tower", "dog",   "forest",
                                                     "bell", "road",  "sailor", "lamp"};
constexpr std::array<std::string_view, 12> kVerbs = {"see",  "follow", "find", "carry", "hear", "leave",
                                                     "hold", "paint",  "know", "cross", "call", "guard"};
constexpr std::array<std::string_view, 12> kAdjectives = {"small", "old",   "green", "quiet", "bright", "heavy",
                                                          "cold",  "young", "grey",  "warm",  "deep",   "golden"};
constexpr std::array<std::string_view, 6> kPlaces = {"near the",  "behind the", "under the",
                                                     "above the", "beside the", "beyond the"};

std::string plural(std::string_view noun) {
  return noun == "child" ? "children" : fmt::format("{}s", noun);
}

// Third person singular.
std::string with_s(std::string_view verb) {
  if (verb == "carry") return "carries";
  return verb == "cross" ? "crosses" : fmt::format("{}s", verb);
}

std::string noun_phrase(Dice& dice, bool many) {
  const std::string_view noun = kNouns[dice.favourite(kNouns.size())];
  const std::string adjective =
      dice.roll(2) == 0 ? fmt::format("{} ", kAdjectives[dice.favourite(kAdjectives.size())]) : "";
  return fmt::format("the {}{}", adjective, many ? plural(noun) : std::string(noun));
}

std::string sentence(Dice& dice) {
  const bool many = dice.roll(2) == 0;
  const std::string subject = noun_phrase(dice, many);
  const std::string_view verb = kVerbs[dice.favourite(kVerbs.size())];
  std::string text =
      fmt::format("{} {} {}", subject, many ? std::string(verb) : with_s(verb), noun_phrase(dice, dice.roll(2) == 0));
  if (dice.roll(3) == 0) {
    // One after the other: compilers choose the order in which arguments of a call are made, and the text would be
    // another one on another machine.
    const std::string_view place = kPlaces[dice.roll(kPlaces.size())];
    text += fmt::format(" {} {}", place, kNouns[dice.favourite(kNouns.size())]);
  }
  return text + ".\n";
}

std::string sum(Dice& dice) {
  const std::size_t a = dice.roll(50), b = dice.roll(50);
  return fmt::format("{} + {} = {}.\n", a, b, a + b);
}

std::string counting(Dice& dice) {
  const std::size_t from = dice.roll(90);
  return fmt::format("count: {} {} {} {} {}.\n", from, from + 1, from + 2, from + 3, from + 4);
}

std::string echo(Dice& dice) {
  const std::string phrase = noun_phrase(dice, false);
  return fmt::format("say {}: {}.\n", phrase, phrase);
}

std::string line(Dice& dice) {
  switch (dice.roll(8)) {
    case 0:
      return sum(dice);
    case 1:
      return counting(dice);
    case 2:
      return echo(dice);
    default:
      return sentence(dice);
  }
}

class GeneratedCorpus final : public Corpus {
 public:
  GeneratedCorpus(std::uint64_t seed, std::size_t size) {
    Dice dice(seed);
    bytes_.reserve(size + 128);
    while (bytes_.size() < size) {
      const std::string text = line(dice);
      bytes_.insert(bytes_.end(), text.begin(), text.end());
    }
    bytes_.resize(size);
  }
  std::span<const std::uint8_t> bytes() const override { return bytes_; }
  const std::string& name() const override { return name_; }

 private:
  std::string name_ = "generated text";
  std::vector<std::uint8_t> bytes_;
};

}  // namespace

std::shared_ptr<const Corpus> Corpus::generate(std::uint64_t seed, std::int64_t bytes) {
  WEFT_CHECK(bytes > 0);
  return std::make_shared<GeneratedCorpus>(seed, static_cast<std::size_t>(bytes));
}

}  // namespace weft
