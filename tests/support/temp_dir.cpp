#include "support/temp_dir.hpp"

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/error.hpp"

namespace dlock::test {
namespace {

/// sun_path has 108 bytes; the rest is for our own name and the socket's.
constexpr std::size_t longest_base = 60;

std::string base_directory() {
  const char* named = std::getenv("TMPDIR");
  const std::string_view base = named == nullptr ? "" : named;
  return base.empty() || base.size() > longest_base ? "/tmp" : std::string(base);
}

}  // namespace

TempDir::TempDir() : path_(base_directory() + "/dlock-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw_errno("mkdtemp " + path_);
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace dlock::test
