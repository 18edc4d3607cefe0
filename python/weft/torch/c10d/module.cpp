// What Python calls: one function that makes a group, and one that leaves all groups when the process ends.
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <set>

#include "weft_group.hpp"

namespace weft_c10d {
namespace {

// Groups that live, so that a process that ends without destroying them leaves in order: the interpreter then destroys
// nothing of them.
struct LiveGroups {
  std::mutex mutex;
  std::set<WeftProcessGroup*> groups;
};
LiveGroups& live_groups() {
  static auto* const kGroups = new LiveGroups;  // threads may outlive static objects
  return *kGroups;
}

class ListedGroup : public WeftProcessGroup {
 public:
  ListedGroup(const c10::intrusive_ptr<c10d::Store>& store, const Joining& joining) : WeftProcessGroup(store, joining) {
    const std::lock_guard<std::mutex> lock(live_groups().mutex);
    live_groups().groups.insert(this);
  }
  // The thread that completes works may wait for Python's lock, so it must not be joined under it.
  ~ListedGroup() override {
    {
      const std::lock_guard<std::mutex> lock(live_groups().mutex);
      live_groups().groups.erase(this);
    }
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const pybind11::gil_scoped_release unlocked;
      leave();
    } else {
      leave();
    }
  }
};

c10::intrusive_ptr<BackendBase> make_group(const c10::intrusive_ptr<c10d::Store>& store, std::int64_t rank,
                                           std::int64_t ranks, const std::string& root, const std::string& secret,
                                           int root_listener, double timeout, bool check) {
  return c10::make_intrusive<ListedGroup>(store, Joining{rank, ranks, root, secret, root_listener, timeout, check});
}

void leave_all() {
  const std::lock_guard<std::mutex> lock(live_groups().mutex);
  for (WeftProcessGroup* const group : live_groups().groups) group->leave();
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("make_group", &make_group, pybind11::call_guard<pybind11::gil_scoped_release>());
  module.def("leave_all", &leave_all, pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace weft_c10d
