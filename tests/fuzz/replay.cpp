// Runs a target over the files of a directory: the seeds, and earlier findings of the fuzzer.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/fuzz.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 64;
  int inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    // If the input breaks a promise, this is the last line.
    std::printf("%s\n", entry.path().c_str());
    std::fflush(stdout);
    dlock::fuzz::try_input(input);
    ++inputs;
  }
  return inputs > 0 ? 0 : 66;
}
