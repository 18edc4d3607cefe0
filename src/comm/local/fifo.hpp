// First in, first out, without freeing memory.
#pragma once

#include <cstddef>
#include <vector>

namespace weft {

template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  void push(T item) { items_.push_back(item); }
  T pop() {
    const T item = items_[head_++];
    if (empty()) {
      items_.clear();
      head_ = 0;
    }
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace weft
