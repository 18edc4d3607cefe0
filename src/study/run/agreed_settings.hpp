// What all ranks of a run must have been given alike. Ranks that are processes have command lines of their own, so they
// compare what decides the run before anything else, and name what differs.
#pragma once

#include <string>
#include <vector>

#include "comm/exchange.hpp"

namespace weft {

struct AgreedSetting {
  std::string name;   // as it is given: "--lr"
  std::string value;  // compared; a digest of what is large
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
