// What ranks of one process share that talk by paced copies on one GPU. Whoever starts the ranks owns it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/paced_device/paced_device.hpp"

namespace weft {

// Of the ranks that joined one identity.
class PacedFabric {
 public:
  PacedFabric(PacedDevice& device, std::int64_t ranks);

  struct Group {
    std::shared_ptr<std::byte> memory;  // a PacedGroupMemory
    std::uint32_t number = 0;
    std::string words;  // whose it is
  };
  // The same for all members: those that name the same split and color. The first one makes it.
  Group group(int split, int color, const std::string& words, PacedDevice& device);

  PacedSignals& signals() const { return *reinterpret_cast<PacedSignals*>(signals_.get()); }
  std::uint32_t* collectives_by_link() const { return reinterpret_cast<std::uint32_t*>(collectives_.get()); }
  bool is_aborted() const;
  void abort(const std::string& why);
  std::string why_aborted() const;
  // In whose kernels one has waited too long for the others, in words; empty: in none.
  std::string late_group() const;

 private:
  std::shared_ptr<std::byte> signals_, collectives_;
  mutable std::mutex mutex_;
  std::map<std::pair<int, int>, Group> groups_;  // by split and color
  std::string why_aborted_;                      // what the first one said
};

class PacedDeviceWorld {
 public:
  std::string make_identity();
  std::shared_ptr<PacedFabric> join(const std::string& identity, PacedDevice& device, std::int64_t ranks);

 private:
  std::mutex mutex_;
  std::int64_t identities_ = 0;
  std::map<std::string, std::weak_ptr<PacedFabric>> fabrics_;
};

}  // namespace weft
