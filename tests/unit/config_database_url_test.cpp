#include <doctest/doctest.h>

#include "config/redaction.hpp"
#include "config/server_url.hpp"
#include "unit/config_support.hpp"

namespace dlock {
namespace {

std::string fault(const std::string& query) {
  const auto error = test::error_of([&] { parse_server_url("postgres://h/db?" + query); });
  if (!error) return "";
  CHECK(error->first == ErrorKind::usage);
  return error->second;
}

TEST_CASE("a parameter that libpq would refuse is refused with the URL") {
  CHECK(fault("ssl-mode=require") == "\"ssl-mode\" after the ? is unknown: did you mean sslmode?");
  CHECK(fault("nonsense=1").empty());  // left to libpq, which may be newer and know it
  CHECK(fault("=1") == "\"\" after the ? is unknown");
  CHECK(fault("sslmode=yes") ==
        "invalid sslmode \"yes\" (disable, allow, prefer, require, verify-ca, verify-full)");
  CHECK(fault("ssl%6dode=").starts_with("invalid sslmode \"\""));
  CHECK(fault("target_session_attrs=master").starts_with("invalid target_session_attrs "));
  CHECK(fault("ssl=1") == "invalid ssl \"1\" (true)");
  CHECK_FALSE(fault("sslm%ode=require").empty());
  CHECK_FALSE(fault("sslro%6ftcert=ca.pem").empty());
  for (const char* good :
       {"ssl%6dode=verify-full", "target_session_attrs=read-write", "connect_timeout=", "ssl=true",
        "load_balance_hosts=random", "sslrootcert=system", "sslcert=/c&sslkey=/k", "options=%20"}) {
    CAPTURE(good);
    CHECK(fault(good).empty());
  }
}

TEST_CASE("a wrong parameter of a URL is an error with the place of the URL") {
  const std::string url = "postgres://h/db?sslmode=full";
  test::Surroundings place;
  CHECK(place.usage_error({"inspect", "--server", url}).starts_with("--server: invalid sslmode "));
  place.variables["DLOCK_SERVER"] = url;
  CHECK(place.usage_error({"inspect"}).starts_with("DLOCK_SERVER: invalid sslmode "));
  place.variables.erase("DLOCK_SERVER");
  const std::string file = place.user("server = " + url);
  const std::string said = place.file_error({"inspect"});
  CAPTURE(said);
  CHECK(said.starts_with(file + ":1: server: invalid sslmode "));
}

TEST_CASE("a password is known in a parameter whose name is percent-encoded") {
  const std::string url = "postgres://h/db?user=u&p%61ssword=c2Vj&h%6fst=/run/pg";
  const auto target = std::get<SqlTarget>(parse_server_url(url));
  CHECK(target.has_password);
  CHECK(target.shown == "postgres://h/db?host=/run/pg");
  CHECK(holds_password(url));
  CHECK(redacted(url) == "postgres://h/db?user=u&p%61ssword=***&h%6fst=/run/pg");
  for (const char* query : {"p%61ssword=c2Vj&x=1", "password=a&c2Vj=", "sslpassword=a&c2Vj=="}) {
    CHECK(fault(query).ends_with("an & in a password is %26"));
  }
}

}  // namespace
}  // namespace dlock
