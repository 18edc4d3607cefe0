#include "app/progress_bars.hpp"

#include <map>
#include <memory>

#include "base/progress.hpp"

namespace weft {
namespace {

class ProgressBars {
 public:
  explicit ProgressBars(std::ostream& terminal) : terminal_(terminal) {}

  void show(std::string_view task, std::size_t done, std::size_t total) {
    const std::lock_guard lock(mutex_);
    const auto found = bars_.try_emplace(std::string(task), terminal_, std::string(task), total).first;
    if (done < total) {
      found->second.show(done);
    } else {
      bars_.erase(found);
    }
  }

 private:
  std::ostream& terminal_;
  std::mutex mutex_;
  std::map<std::string, ProgressBar> bars_;  // of the tasks under way
};

}  // namespace

OnProgress progress_bars(std::ostream* terminal) {
  if (terminal == nullptr) return {};
  return [bars = std::make_shared<ProgressBars>(*terminal)](std::string_view task, std::size_t done,
                                                            std::size_t total) { bars->show(task, done, total); };
}

}  // namespace weft
