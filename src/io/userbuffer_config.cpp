#include "io/userbuffer_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMostUserbufferBlocks = 32;  // NVTE_MAX_SMS

// Transformer Engine's keys of a product.
constexpr std::array<std::string_view, 13> kUserbufferKeys{"method",
                                                           "is_reduce_scatter",
                                                           "num_sm",
                                                           "cga_size",
                                                           "set_sm_margin",
                                                           "num_splits",
                                                           "aggregate",
                                                           "atomic_gemm",
                                                           "use_ce",
                                                           "fp8_buf",
                                                           "comm_priority",
                                                           "gemm_priority",
                                                           "pipeline_rs_overlap_first_gemm"};
// Products whose second gather Weft does not plan (docs/policies.md).
constexpr std::array<std::string_view, 2> kExternalProducts{"proj_wgrad", "fc2_wgrad"};

std::string without_blank_ends(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1));
}

std::vector<UserbufferMethod> methods_for(LinearPass pass) {
  const UserbufferMethod usual = default_userbuffers().of(pass).method;
  if (usual == UserbufferMethod::pipeline) return {UserbufferMethod::pipeline, UserbufferMethod::ring_exchange};
  return {usual};
}

class UserbufferReader {
 public:
  UserbufferReader(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  UserbufferTable read() {
    std::istringstream lines(text_);
    for (std::string line; std::getline(lines, line);) {
      ++line_;
      line = line.substr(0, line.find('#'));
      const std::string content = without_blank_ends(line);
      if (content.empty() || content == "---" || content == "{}") continue;
      const auto colon = content.find(':');
      if (colon == std::string::npos) reject(content, "lines 'PRODUCT:' and, indented, 'KEY: VALUE'");
      const std::string key = without_blank_ends(content.substr(0, colon)),
                        value = without_blank_ends(content.substr(colon + 1));
      if (line.front() != ' ' && line.front() != '\t') {
        begin_product(key, value);
      } else {
        read_key(key, value);
      }
    }
    return table_;
  }

 private:
  [[noreturn]] void reject(const std::string& what, const std::string& allowed) const {
    fail("{}:{}: '{}': allowed: {}", file_, line_, what, allowed);
  }

  void begin_product(const std::string& name, const std::string& value) {
    if (!value.empty()) reject(name + ": " + value, "a product's keys in lines of their own below it");
    external_ = std::ranges::find(kExternalProducts, name) != kExternalProducts.end();
    product_.reset();
    std::vector<std::string> names(kExternalProducts.begin(), kExternalProducts.end());
    for (std::size_t i = 0; i < kLinearPasses; ++i) {
      const auto pass = static_cast<LinearPass>(i);
      names.emplace_back(name_of(pass));
      if (name == name_of(pass)) product_ = pass;
    }
    if (!product_ && !external_) reject(name, fmt::format("{}", fmt::join(names, ", ")));
    if (!seen_.insert(name).second) reject(name, "every product once");
  }

  void read_key(const std::string& key, const std::string& value) {
    if (!product_ && !external_) reject(key, "keys below a product");
    if (std::ranges::find(kUserbufferKeys, key) == kUserbufferKeys.end())
      reject(key, fmt::format("{}", fmt::join(kUserbufferKeys, ", ")));
    if (external_) return;
    UserbufferUse& use = table_.of(*product_);
    if (key == "method") use = with_method(use, value);
    if (key == "num_sm") use.thread_blocks = blocks_in(value);
  }

  // Its number of SMs is the default of the method where no line says another before.
  UserbufferUse with_method(UserbufferUse use, const std::string& value) const {
    const std::vector<UserbufferMethod> methods = methods_for(*product_);
    const auto found = std::ranges::find_if(methods, [&](UserbufferMethod method) { return value == name_of(method); });
    if (found == methods.end()) {
      std::vector<std::string_view> names;
      for (const UserbufferMethod method : methods) names.push_back(name_of(method));
      reject(fmt::format("{}: method: {}", name_of(*product_), value), fmt::format("{}", fmt::join(names, ", ")));
    }
    const bool unchanged = use == default_userbuffers().of(*product_);
    use.method = *found;
    if (unchanged && use.method == UserbufferMethod::ring_exchange) use.thread_blocks = 1;
    return use;
  }

  std::int32_t blocks_in(const std::string& value) const {
    const std::int64_t blocks = parse_integer(value, fmt::format("{}:{}: num_sm", file_, line_));
    if (blocks < 1 || blocks > kMostUserbufferBlocks)
      reject("num_sm: " + value, fmt::format("1 to {}", kMostUserbufferBlocks));
    return static_cast<std::int32_t>(blocks);
  }

  const std::string& text_;
  const std::string& file_;
  std::int64_t line_ = 0;
  std::optional<LinearPass> product_;
  bool external_ = false;
  std::set<std::string> seen_;
  UserbufferTable table_ = default_userbuffers();
};

}  // namespace

UserbufferTable read_userbuffer_config(const std::string& text, const std::string& file) {
  return UserbufferReader(text, file).read();
}

}  // namespace weft
