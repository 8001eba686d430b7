#include "base/endpoint.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace dlock::test {
namespace {

TEST_CASE("a password that cannot be read fails one login, and the next one takes the last") {
  bool readable = true;
  const Password password([&](const CallOptions&) -> std::string {
    if (!readable) throw_usage("gone");
    return "pw";
  });
  readable = false;
  const auto fails = [&] {
    try {
      password.text({});
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::unavailable && std::string(error.what()) == "gone";
    }
  };
  CHECK(eventually(fails));
  CHECK(password.text({}) == "pw");
  CHECK(fails());
}

TEST_CASE("logins share a password that took as long to read as it is old") {
  int reads = 0;
  const Password password([&](const CallOptions&) {
    if (++reads == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    return std::to_string(reads);
  });
  CHECK(password.text({}) == "1");
  CHECK(eventually([&] { return password.text({}) == "2"; }));
}

}  // namespace
}  // namespace dlock::test
