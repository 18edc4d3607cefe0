// Names of kernels for tables. What tells two kernels apart is often deep in their template arguments.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft {

// Without return type and function arguments: "at::native::vectorized_elementwise_kernel<4,
// at::native::AddFunctor<float>>".
std::string plain_kernel_name(const std::string& name);

// Each name in at most `width` characters (at least 24), different names differently: without namespaces where it is
// too long, then cut in the middle, then cut so that the first difference shows, then numbered.
std::vector<std::string> column_names(const std::vector<std::string>& names, std::size_t width);

}  // namespace weft
