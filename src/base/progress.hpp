// A progress bar for terminals.
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

namespace weft {

// Returns one line without its end: "sweep  [#####.....]  51 %  42/83  3 s left".
std::string progress_line(std::string_view label, std::size_t done, std::size_t total, double elapsed_s);

class ProgressBar {
 public:
  ProgressBar(std::ostream& terminal, std::string label, std::size_t total);
  // Wipes the line.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // Draws the line again unless it was drawn within the last tenth of a second.
  void show(std::size_t done);

 private:
  std::ostream& terminal_;
  std::string label_;
  std::size_t total_;
  std::chrono::steady_clock::time_point start_, drawn_;
};

}  // namespace weft
