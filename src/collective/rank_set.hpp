// A set of ranks: whose contributions a piece of data holds.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

namespace weft {

class RankSet {
 public:
  RankSet() = default;
  static RankSet only(std::int64_t rank) {
    RankSet set;
    set.insert(rank);
    return set;
  }
  // 0 .. count-1.
  static RankSet first(std::int64_t count) {
    RankSet set;
    for (std::int64_t rank = 0; rank < count; ++rank) set.insert(rank);
    return set;
  }

  void insert(std::int64_t rank) {
    const std::size_t word = rank / 64;
    if (word >= words_.size()) words_.resize(word + 1);
    words_[word] |= std::uint64_t{1} << (rank % 64);
  }
  bool contains(std::int64_t rank) const {
    const std::size_t word = rank / 64;
    return word < words_.size() && ((words_[word] >> (rank % 64)) & 1) != 0;
  }
  bool meets(const RankSet& other) const {
    const std::size_t common = std::min(words_.size(), other.words_.size());
    for (std::size_t i = 0; i < common; ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  void add(const RankSet& other) {
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  }
  std::int64_t size() const {
    std::int64_t count = 0;
    for (const std::uint64_t word : words_) count += std::popcount(word);
    return count;
  }
  std::vector<std::int64_t> members() const {
    std::vector<std::int64_t> ranks;
    for (std::size_t i = 0; i < words_.size() * 64; ++i) {
      if (contains(static_cast<std::int64_t>(i))) ranks.push_back(static_cast<std::int64_t>(i));
    }
    return ranks;
  }
  friend bool operator==(const RankSet&, const RankSet&) = default;  // sets never shrink, so words_ has no zero tail

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace weft
