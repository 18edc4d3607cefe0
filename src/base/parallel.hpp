// A loop whose rounds run on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

// Calls work(0) .. work(count - 1), each once, on up to `jobs` threads (the caller's is one of them); returns when all
// are done. Where rounds throw, the exception of the lowest one that ran is rethrown at the end and rounds that have
// not begun are left out.
void parallel_for(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

}  // namespace weft
