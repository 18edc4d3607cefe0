// A program outside the repository that uses an installed Weft.
#include <base/text.hpp>
#include <cstdio>

int main() {
  std::puts(weft::format_bytes(weft::Bytes{3 * 1024 * 1024}).c_str());
}
