#include "net/tls.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <optional>

#include "support/files.hpp"
#include "support/tls_files.hpp"
#include "unit/error_of.hpp"

namespace dlock::test {
namespace {

std::optional<ErrorKind> trouble_with(const TlsSettings& settings) {
  return error_kind_of([&] { client_context(settings); });
}

}  // namespace

TEST_CASE("files of TLS that were good before are away while they are replaced, not wrong usage") {
  const TestCa ca;
  const Certificate before = ca.issue("before"), after = ca.issue("after");
  const TempDir dir;
  const TlsSettings settings{dir / "ca", dir / "cert", dir / "key", ""};
  write_file(settings.ca, read_file(ca.file()));
  write_file(settings.certificate, read_file(before.file));
  write_file(settings.key, read_file(before.key));
  REQUIRE(!trouble_with(settings));
  write_file(settings.ca, "");
  CHECK(trouble_with(settings) == ErrorKind::unavailable);
  std::filesystem::remove(settings.ca);
  CHECK(trouble_with(settings) == ErrorKind::unavailable);
  write_file(settings.ca, read_file(ca.file()));
  write_file(settings.certificate, read_file(after.file));
  CHECK(trouble_with(settings) == ErrorKind::unavailable);
  write_file(settings.key, read_file(after.key));
  CHECK(!trouble_with(settings));
}

}  // namespace dlock::test
