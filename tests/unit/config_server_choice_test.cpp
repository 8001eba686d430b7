#include <doctest/doctest.h>
#include <sys/stat.h>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

using test::Surroundings;
using Words = std::vector<std::string>;

Words inspect(const std::string& server) { return {"inspect", "--server", server}; }

std::optional<std::string> password(const Settings& settings) {
  return std::get<RedisTarget>(settings.server).password;
}

TEST_CASE("the server comes from flag, variable, user's file, system's file") {
  Surroundings place;
  CHECK(place.resolve({"inspect"}).server_is_default);
  place.system("server = redis://system");
  CHECK(shown(place.resolve({"inspect"}).server) == "redis://system:6379/0");
  CHECK_FALSE(place.resolve({"inspect"}).server_is_default);
  place.user("server = redis://user");
  CHECK(shown(place.resolve({"inspect"}).server) == "redis://user:6379/0");
  place.variables["DLOCK_SERVER"] = "  redis://variable  ";
  CHECK(shown(place.resolve({"inspect"}).server) == "redis://variable:6379/0");
  CHECK(shown(place.resolve(inspect("local:")).server) == "local:");
  CHECK_FALSE(place.resolve(inspect("local:")).server_is_default);
}

TEST_CASE("more than one server is refused") {
  Surroundings place;
  const std::string tail = ": more than one server is not supported by this version";
  CHECK(place.usage_error({"inspect", "--server", "local:", "--server=redis://h"}) ==
        "--server" + tail);
  place.variables["DLOCK_SERVER"] = "redis://a redis://b";
  CHECK(place.usage_error({"inspect"}) == "DLOCK_SERVER" + tail);
  CHECK(shown(place.resolve(inspect("local:")).server) == "local:");
}

TEST_CASE("a wrong URL is refused where it stands") {
  Surroundings place;
  CHECK(place.usage_error(inspect("rdis://h")) ==
        "--server: unknown scheme rdis://: did you mean redis://?");
  CHECK(place.usage_error(inspect("redis://h:0")).starts_with("--server: \"0\" is no port"));
  CHECK(place.usage_error(inspect("")) == "--server: the value is empty");
  CHECK(place.usage_error(inspect("redis://a redis://b")).starts_with("--server: "));
  place.variables["DLOCK_SERVER"] = " ";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: holds spaces alone: unset it, or give it a value");
  place.variables["DLOCK_SERVER"] = "rediss://h";
  CHECK(place.usage_error({"inspect"}) ==
        "DLOCK_SERVER: rediss:// is not supported by this version");
  CHECK(place.usage_error(inspect("local:")).starts_with("DLOCK_SERVER: rediss://"));
  place.variables.erase("DLOCK_SERVER");
  const std::string file = place.user("\nserver = redis://:secret@h/x");
  CHECK(place.file_error({"inspect"}) ==
        file + ":2: server: \"x\" is no database number: it is 0, 1, 2, ...");
}

TEST_CASE("passwords come in their order") {
  Surroundings place;
  const std::string system = place.file("system.pw", "system-file\n");
  place.system("server = redis://h\npassword-file = " + system);
  CHECK(password(place.resolve({"inspect"})) == "system-file");
  place.user("password = user with  blanks");
  CHECK(password(place.resolve({"inspect"})) == "user with  blanks");
  place.variables["REDISCLI_AUTH"] = "rediscli";
  CHECK(password(place.resolve({"inspect"})) == "rediscli");
  place.variables["DLOCK_PASSWORD"] = "variable";
  CHECK(password(place.resolve({"inspect"})) == "variable");
  place.variables["DLOCK_PASSWORD_FILE"] = place.file("variable.pw", "variable-file");
  CHECK(password(place.resolve({"inspect"})) == "variable-file");
  CHECK(password(place.resolve(inspect("redis://:url@h"))) == "url");
  const std::string flag = place.file("flag.pw", "flag-file\n\n");
  CHECK(password(place.resolve({"inspect", "--password-file", flag})) == "flag-file\n");
  CHECK(password(place.resolve({"inspect", "--server=redis://:url@h", "--password-file", flag})) ==
        "flag-file\n");
}

TEST_CASE("a server without a password has none") {
  CHECK_FALSE(password(Surroundings().resolve(inspect("redis://h"))));
}

TEST_CASE("a password file that cannot be had is refused where it was named") {
  Surroundings place;
  const auto with = [](const std::string& file) {
    return Words{"inspect", "--server=redis://h", "--password-file", file};
  };
  const std::string missing = place.path("missing");
  CHECK(place.usage_error(with(missing)) ==
        "--password-file: cannot read " + missing + ": No such file or directory");
  CHECK(place.usage_error(with(place.path(""))).ends_with("Is a directory"));
  CHECK(place.usage_error(with("/dev/zero")).find("is longer than 16384 bytes") !=
        std::string::npos);
  const std::string empty = place.file("empty", "\n");
  CHECK(place.usage_error(with(empty)) ==
        "--password-file: the password in " + empty + " is empty");
  CHECK(place.resolve({"inspect", "--password-file", missing}).server_is_default);
  place.variables["DLOCK_PASSWORD_FILE"] = missing;
  CHECK(place.usage_error(inspect("redis://h")).starts_with("DLOCK_PASSWORD_FILE: cannot read "));
  place.variables.erase("DLOCK_PASSWORD_FILE");
  const std::string file = place.user("password-file = " + missing);
  CHECK(
      place.file_error(inspect("redis://h")).starts_with(file + ":1: password-file: cannot read "));
  place.user("password-file = relative");
  CHECK(place.file_error(inspect("redis://h")) == file + ":1: password-file: is no absolute path");
}

TEST_CASE("an empty password variable matters where a Redis is used, and nowhere else") {
  for (const char* name : {"DLOCK_PASSWORD", "DLOCK_PASSWORD_FILE", "REDISCLI_AUTH"}) {
    Surroundings place;
    place.variables[name] = "";
    CHECK(
        place.usage_error(inspect("redis://h")).starts_with(std::string(name) + ": the variable"));
    CHECK(place.usage_error(inspect("redis://:pw@h")).starts_with(name));
    CHECK_FALSE(place.resolve(inspect("local:")).server_is_default);
  }
}

TEST_CASE("a user without a password from anywhere is refused") {
  Surroundings place;
  const std::string line =
      ": a user without a password, which redis-cli would read as the password: write "
      "user:password@, or use --password-file or DLOCK_PASSWORD";
  CHECK(place.usage_error(inspect("redis://secret@h")) == "--server" + line);
  CHECK(place.usage_error(inspect("unix://secret@/h")) == "--server" + line);
  place.variables["DLOCK_PASSWORD"] = "pw";
  const Settings settings = place.resolve(inspect("redis://app@h"));
  CHECK(password(settings) == "pw");
  CHECK(std::get<RedisTarget>(settings.server).user == "app");
  CHECK(settings.warnings.empty());
}

TEST_CASE("a password on the command line or open to all is warned of, without the password") {
  Surroundings place;
  const auto warnings = place.resolve(inspect("redis://u:secret@h")).warnings;
  CHECK(warnings == Words{"a password on the command line can be seen by every user of this host: "
                          "use --password-file"});
  place.variables["DLOCK_SERVER"] = "redis://:secret@h";
  CHECK(place.resolve({"inspect"}).warnings.empty());
  const std::string file = place.file("pw", "secret\n");
  chmod(file.c_str(), 0644);
  CHECK(place.resolve({"inspect", "--password-file", file}).warnings ==
        Words{file + " holds a password and every user may read it: chmod o-r " + file});
}

}  // namespace
}  // namespace dlock
