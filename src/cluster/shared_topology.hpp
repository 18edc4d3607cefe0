// A topology that a cluster may have beside its levels. Clusters are copied often and wirings are large, so copies
// share it; two are equal where the wirings are.
#pragma once

#include <memory>

namespace weft {

struct Topology;

class SharedTopology {
 public:
  SharedTopology() = default;
  explicit SharedTopology(Topology topology);

  explicit operator bool() const { return topology_ != nullptr; }
  const Topology& operator*() const { return *topology_; }
  friend bool operator==(const SharedTopology& a, const SharedTopology& b);

 private:
  std::shared_ptr<const Topology> topology_;
};

}  // namespace weft
