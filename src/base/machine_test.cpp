#include "base/machine.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

namespace weft {
namespace {

TEST(CpuName, IsTheModelsNameOrTheArchitecturesPart) {
  EXPECT_EQ(cpu_name("processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R) 8481C\n"
                     "processor\t: 1\nmodel name\t: another\n",
                     "x86_64"),
            "Intel(R) Xeon(R) 8481C");
  EXPECT_EQ(cpu_name("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40", "aarch64"),
            "aarch64 0x41 0xd40");
  EXPECT_EQ(cpu_name("", "riscv64"), "riscv64");
  EXPECT_EQ(cpu_name("model name\t:\nno colon\n:\n", "x86_64"), "x86_64");
}

TEST(ThisMachine, HasANameAndItsOnlineCores) {
  const MachineFacts here = this_machine();
  EXPECT_FALSE(here.cpu.empty());
  EXPECT_EQ(here.cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_EQ(here.ranks, 0);
  EXPECT_EQ(machine_difference(here, here), "");
}

TEST(MachineDifference, NamesWhatDiffersAndForgivesWhatIsNotSaid) {
  const MachineFacts there{"one", 4, 2, 1, "local"};
  EXPECT_EQ(machine_difference(there, {"one", 4, 2, 1, "mpi"}), "");
  EXPECT_EQ(machine_difference(there, {"one", 4, 0, 0, ""}), "");
  EXPECT_EQ(machine_difference({}, there), "");
  EXPECT_EQ(machine_difference(there, {"two", 4, 2, 1, ""}), "it was measured on 'one', this is 'two'");
  EXPECT_EQ(machine_difference(there, {"one", 2, 4, 2, ""}),
            "it was measured with 4 cores, here are 2; it was measured with 2 ranks, here are 4; "
            "it was measured with 1 threads a rank, here are 2");
}

}  // namespace
}  // namespace weft
