// A progress bar for terminals, written by whoever finishes a piece of work, from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>

namespace weft {

// "sweep  [#####.....]  51 %  42/83  3 s left": one line without its end.
std::string progress_line(std::string_view label, std::size_t done, std::size_t total, double elapsed_s);

class ProgressBar {
 public:
  // Draws on `out`, or nowhere where that is null: the caller knows whether a terminal listens.
  ProgressBar(std::ostream* out, std::string label, std::size_t total);
  // Wipes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void advance(std::size_t pieces = 1);

 private:
  std::ostream* out_;
  std::string label_;
  std::size_t total_;
  std::mutex mutex_;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace weft
