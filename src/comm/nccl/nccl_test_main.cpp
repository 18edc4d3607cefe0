// Started by tools/gpu_ranks.sh, the same program on every rank. All ranks run the same tests in order; with --timing
// they time instead.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "comm/nccl/test_nccl_session.hpp"

namespace weft::nccl_ranks {
namespace {

Session* the_session = nullptr;

Launch launch_of_environment() {
  Variables variables;
  for (const std::string_view name : kLaunchVariables) {
    const std::string key(name);
    if (const char* const value = std::getenv(key.c_str())) variables[key] = value;
  }
  return launch_from(variables);
}

}  // namespace

Session& session() {
  return *the_session;
}

int run(bool timing) {
  constexpr int kSkipped = 77;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no GPU that CUDA can use");
    return kSkipped;
  }
  const Launch launch = launch_of_environment();
  if (launch.kind != LaunchKind::tcp) {
    std::puts("skipped: started as one process; tools/gpu_ranks.sh 2 comm_nccl_test starts two ranks");
    return kSkipped;
  }
  tcp::RendezvousOptions options;
  options.rank = launch.rank;
  options.size = launch.ranks;
  options.root = launch.root;
  options.secret = launch.secret;
  options.root_listener = launch.root_listener;
  Session all{launch, tcp::Rendezvous(options)};
  the_session = &all;
  if (!timing) return RUN_ALL_TESTS();
  print_timings(all);
  return 0;
}

}  // namespace weft::nccl_ranks

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    return weft::nccl_ranks::run(argc > 1 && std::string_view(argv[1]) == "--timing");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
