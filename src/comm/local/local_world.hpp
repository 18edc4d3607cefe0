// Ranks that are threads of one process. Transfers either run at memory speed, where the receiver moves the bytes
// straight from the sender's memory and reduces them on the way, or are paced by the links of a cluster
// (comm/local/paced_network.hpp), which works for links up to about 1 GB/s.
#pragma once

#include <memory>

#include "cluster/cluster.hpp"
#include "comm/transport.hpp"

namespace weft {

struct LocalOptions {
  std::int64_t ranks = 1;
  const Cluster* cluster = nullptr;  // paces, if given; must outlive the world. rank i is its device i
  double slowdown = 1;               // of all its links
};

class LocalWorld {
 public:
  explicit LocalWorld(const LocalOptions& options);
  ~LocalWorld();
  LocalWorld(const LocalWorld&) = delete;
  LocalWorld& operator=(const LocalWorld&) = delete;

  // One per rank; the world must outlive it.
  std::unique_ptr<Transport> transport(std::int64_t rank);

  struct Shared;

 private:
  std::unique_ptr<Shared> shared_;
};

}  // namespace weft
