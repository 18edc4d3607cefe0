// A loop whose iterations run on several threads.
#pragma once

#include <cstddef>
#include <functional>

namespace weft {

// Calls work(0) .. work(count - 1), each once, on up to `jobs` threads including the caller's, and returns when all
// have ended. If calls throw, calls that have not begun are skipped, and the exception of the lowest index is rethrown.
void parallel_for(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work);

}  // namespace weft
