#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;
using test::Surroundings;
using Words = std::vector<std::string>;

const Words a_run = {"run", "-k", "K", "true"};

TEST_CASE("a file has a setting a line, comments and blank lines") {
  Surroundings place;
  place.user(
      "# first\n\n  \t\n  # indented\nttl=10\n\tlabel  =  a = b # no comment  \r\nwait = 1h30m");
  const RunSettings settings = place.resolve<RunSettings>(a_run);
  CHECK(settings.ttl == 10s);
  CHECK(settings.label == "a = b # no comment");
  CHECK(settings.wait == 90min);
}

TEST_CASE("neither file must be there, nor the directories above") {
  Surroundings place;
  CHECK(place.resolve<RunSettings>(a_run).server_is_default);
  place.variables["HOME"] = "/nonexistent/home";
  CHECK(place.resolve<RunSettings>(a_run).server_is_default);
  place.variables["HOME"] = "/dev/null";
  CHECK(place.resolve<RunSettings>(a_run).server_is_default);
}

TEST_CASE("an unknown name is an error with file, line and suggestion") {
  Surroundings place;
  const std::string file = place.user("ttl = 1\n\nwiat = 5\n");
  const std::string expected = file + ":3: unknown setting \"wiat\": did you mean wait?";
  CHECK(place.file_error(a_run) == expected);
  CHECK(place.file_error({"inspect"}) == expected);
  for (const char* name : {"config", "key", "nonblock", "token", "owner", "tls", "sentinel",
                           "replicas", "TTL", "--ttl", "DLOCK_TTL", "", "[section]", "limit"}) {
    place.user(std::string(name) + " = 5");
    CHECK(place.file_error(a_run).starts_with(file + ":1: unknown setting"));
  }
  place.user("tt\x1b = 5");
  CHECK(place.file_error(a_run).find("\"tt\\x1B\"") != std::string::npos);
}

TEST_CASE("a line that is no setting is an error") {
  Surroundings place;
  const std::string file = place.system("ttl = 1\nttl 5\n");
  CHECK(place.file_error(a_run) == file + ":2: expected \"name = value\"");
  place.system("redis://:secret@h");
  CHECK(place.file_error(a_run).find("secret") == std::string::npos);
  for (const char* line :
       {"redis://:c2VjcmV0cGFzcw==@host", "password: c2Vj=", "password c2Vj=", "Password c2Vj = x",
        "passwd c2Vj==", "sever redis c2Vj=", "c2VjcmV0cGFzcw==", "app@c2Vj = 5", "ttl x = 5"}) {
    CAPTURE(line);
    place.system(line);
    CHECK(place.file_error(a_run) == file + ":1: unknown setting: expected \"name = value\"");
  }
  place.system("wiat =");
  CHECK(place.file_error(a_run).ends_with("unknown setting \"wiat\": did you mean wait?"));
  place.system("ttl = \n");
  CHECK(place.file_error(a_run) == file + ":1: ttl: the value is empty");
  place.system(std::string("label = a\0b", 11));
  CHECK(place.file_error(a_run) == file + ":1: the line holds a NUL");
  place.system("wait = soon");
  CHECK(place.file_error(a_run).starts_with(file + ":1: wait: invalid duration \"soon\""));
  place.system("prefix = {x}");
  CHECK(place.file_error(a_run).starts_with(file + ":1: prefix: "));
  place.system("label = \xff");
  CHECK(place.file_error(a_run).starts_with(file + ":1: label: "));
}

TEST_CASE("a name stands once in a file, but for server") {
  Surroundings place;
  const std::string file = place.user("ttl = 1\nwait = 1\nttl = 1\n");
  CHECK(place.file_error(a_run) == file + ":3: ttl: is already set at " + file + ":1: ttl");
  place.user("password = x\npassword-file = /x\n");
  CHECK(place.file_error(a_run).starts_with(file + ":2: password-file: is already set"));
  place.user("server = redis://a\nserver = redis://b\n");
  CHECK(place.file_error(a_run) ==
        file +
            ":2: server: two servers have no majority when one fails: name one, or three or more");
}

TEST_CASE("--config and DLOCK_CONFIG stand in place of both files") {
  Surroundings place;
  place.user("label = user\nttl = 10");
  place.system("wait = 1");
  const std::string flag = place.file("flag.conf", "label = flag");
  const std::string variable = place.file("variable.conf", "label = variable");
  place.variables["DLOCK_CONFIG"] = variable;
  RunSettings settings = place.resolve<RunSettings>(a_run);
  CHECK(settings.label == "variable");
  CHECK(settings.ttl == 30s);
  CHECK_FALSE(settings.wait);
  CHECK(place.resolve<RunSettings>({"run", "--config", flag, "-k", "K", "true"}).label == "flag");
  place.file("variable.conf", "rubbish");
  CHECK(place.resolve<RunSettings>({"run", "--config", flag, "-k", "K", "true"}).label == "flag");
}

TEST_CASE("a file that was asked for must be there and readable") {
  Surroundings place;
  const std::string missing = place.path("missing\x1b.conf");
  CHECK(place.file_error({"inspect", "--config", missing}).starts_with("--config: cannot read "));
  CHECK(place.file_error({"inspect", "--config", missing}).find("missing\\x1B") !=
        std::string::npos);
  CHECK(place.file_error({"inspect", "--config", "redis://:secret@h"}) ==
        "--config: cannot read \"redis://***@h\": No such file or directory");
  place.variables["DLOCK_CONFIG"] = missing;
  CHECK(place.file_error({"inspect"}).starts_with("DLOCK_CONFIG: cannot read "));
  place.variables["DLOCK_CONFIG"] = place.path("");
  CHECK(place.file_error({"inspect"}).ends_with("Is a directory"));
  place.variables["DLOCK_CONFIG"] = "/dev/zero";
  CHECK(place.file_error({"inspect"}).find("is longer than 1048576 bytes") != std::string::npos);
  place.variables["DLOCK_CONFIG"] = "/dev/null";
  CHECK(place.resolve<InspectSettings>({"inspect"}).server_is_default);
}

TEST_CASE("a usual file that is there but no file is an error") {
  Surroundings place;
  mkdir(place.system_file().c_str(), 0700);
  CHECK(place.file_error({"inspect"}).starts_with("cannot read \"" + place.system_file()));
}

TEST_CASE("a file that every user may read is warned of if it holds a password") {
  Surroundings place;
  const std::string file = place.user("password = secret");
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings.empty());
  chmod(file.c_str(), 0640);
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings.empty());
  chmod(file.c_str(), 0644);
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings ==
        Words{file + " holds a password and every user may read it: chmod o-r " + file});
  place.user("server = redis://:secret@h");
  chmod(file.c_str(), 0644);
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings.size() == 1);
  CHECK(place.resolve<InspectSettings>({"inspect", "--server", "local:"}).warnings.size() == 1);
  place.user("server = redis://h\nttl = 5");
  chmod(file.c_str(), 0644);
  CHECK(place.resolve<InspectSettings>({"inspect"}).warnings.empty());
}

TEST_CASE("the home directory is that of HOME") {
  Surroundings place;
  place.user("label = found");
  CHECK(place.resolve<RunSettings>(a_run).label == "found");
  place.variables["HOME"] = place.path("elsewhere");
  CHECK(place.resolve<RunSettings>(a_run).label.empty());
}

}  // namespace
}  // namespace dlock
