// Settings that must be the same on all ranks of a run. Ranks that are processes have command lines of their own, so
// before anything else they compare what decides the run, and name what differs.
#pragma once

#include <string>
#include <vector>

#include "comm/exchange.hpp"

namespace weft {

struct AgreedSetting {
  std::string name;   // as users give it: "--lr"
  std::string value;  // what is compared; a digest where the value is large
  std::string words;  // what a message calls the value; empty: the value itself
};
using AgreedSettings = std::vector<AgreedSetting>;

// One line for each setting in which ranks differ, at most five: "rank 1 has --lr 0.02, ranks 0, 2 have --lr 0.01".
// Empty where all agree.
std::string disagreement(const std::vector<AgreedSettings>& by_rank);

// All ranks call it. Throws Error, with the same words on every rank, where they differ.
void require_agreement(const AgreedSettings& mine, const Exchange& exchange);

// 16 hexadecimal digits of a hash of a large text.
std::string digest_of(std::string_view text);

}  // namespace weft
