#include <doctest/doctest.h>

#include <string>

#include "base/error.hpp"
#include "sql/sql_backend.hpp"

using namespace dlock;

namespace {

/// The message of the error of a connection to a URL with this query, without the URL.
std::string fault(const std::string& query, ErrorKind expected = ErrorKind::usage) {
  const std::string shown = "postgres://127.0.0.1:1/db";
  const auto connection = postgres_connection(shown + "?" + query, shown);
  try {
    connection->connect({later(BootClock::now(), milliseconds(5000)), -1});
  } catch (const Error& error) {
    const std::string said = error.what();
    CAPTURE(said);
    CHECK(error.kind() == expected);
    CHECK(said.starts_with(shown + ": "));
    return said.substr(shown.size() + 2);
  }
  return "connected";
}

TEST_CASE("a wrong parameter of a PostgreSQL URL is wrong usage, in libpq's words") {
  CHECK(fault("ssl-mode=require") == "invalid URI query parameter: \"ssl-mode\"");
  CHECK(fault("=1") == "invalid URI query parameter: \"\"");
  CHECK(fault("sslmode=full") == "invalid sslmode value: \"full\"");
  CHECK(fault("target_session_attrs=master").starts_with("invalid target_session_attrs "));
  CHECK(fault("ssl=1") == "invalid URI query parameter: \"ssl\"");
  CHECK(fault("port=x").starts_with("invalid "));
  CHECK(fault("options=a=b").starts_with("extra key/value separator"));
}

TEST_CASE("what libpq says of a PostgreSQL URL shows no rest of a password") {
  for (const char* query : {"p%61ssword=c2Vj&x=1", "password=a&c2Vj=", "sslpassword=a&c2Vj=",
                            "password=c2Vj==", "password=a&sslmode=c2Vj"}) {
    CAPTURE(query);
    const std::string said = fault(query);
    CHECK(said.ends_with("; an & in a password is %26"));
    CHECK(said.find("c2Vj") == std::string::npos);
  }
}

TEST_CASE("a right PostgreSQL URL is none of the errors of usage") {
  for (const char* query : {"ssl%6dode=prefer", "target_session_attrs=read-write",
                            "connect_timeout=", "ssl=true", "dlock-schema=x&options=%20"}) {
    CAPTURE(query);
    CHECK(fault(query, ErrorKind::unavailable) != "connected");
  }
}

}  // namespace
