#include <doctest/doctest.h>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

const std::vector<std::string> on_file{"guard", "--state", "f"};

std::vector<std::string> guard_on_file(std::vector<std::string> more) {
  more.insert(more.begin(), on_file.begin(), on_file.end());
  return more;
}

}  // namespace

TEST_CASE("guard takes the fence of its flag, else that of the variable") {
  test::Surroundings place;
  CHECK(place.usage_error(guard_on_file({"true"})).starts_with("missing fence: --fence N, or "));
  CHECK(place.resolve<GuardSettings>(guard_on_file({"--fence", "0", "true"})).fence == Fence{0});
  place.variables["DLOCK_FENCE"] = "9007199254740991";
  CHECK(place.resolve<GuardSettings>(guard_on_file({"true"})).fence == Fence{9007199254740991});
  CHECK(place.resolve<GuardSettings>(guard_on_file({"--fence", "7", "true"})).fence == Fence{7});
  place.variables["DLOCK_FENCE"] = "5,6";
  CHECK(place.usage_error(guard_on_file({"true"})) ==
        "DLOCK_FENCE: has a fence for each of several keys: choose with --fence N");
  CHECK(place.resolve<GuardSettings>(guard_on_file({"--fence", "6", "true"})).fence == Fence{6});
  for (const char* bad : {"-1", "1.5", "0x1", "x", " 1", "9007199254740992", "1,2"}) {
    CHECK(place.usage_error(guard_on_file({"--fence", bad, "true"}))
              .starts_with("--fence: invalid fence \"" + std::string(bad) + "\""));
  }
  place.variables["DLOCK_FENCE"] = "";
  CHECK(place.usage_error(guard_on_file({"true"})).starts_with("missing fence"));
}

TEST_CASE("guard has one resource, a file or a name") {
  const test::Surroundings place;
  const auto refused = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"guard", "--fence", "1"});
    words.emplace_back("true");
    return place.usage_error(words);
  };
  CHECK(refused({}) == "missing resource: --state FILE or --state-key NAME");
  CHECK(refused({"--state", "f", "--state-key", "n"}) ==
        "--state and --state-key exclude each other");
  CHECK(refused({"--state", ""}).starts_with("--state: "));
  CHECK(refused({"--state-key", ""}).starts_with("--state-key: "));
  CHECK(refused({"--state-key", "a\nb"}).starts_with("--state-key: "));
  CHECK(refused({"--state", "f", "--server", "local:"}) == "--server: goes with --state-key");
  CHECK(refused({"--state", "f", "--password-file", "/x"}) ==
        "--password-file: goes with --state-key");
  for (const char* prefix : {"app:", "{x}"}) {
    CHECK(refused({"--state", "f", "--prefix", prefix}) == "--prefix: goes with --state-key");
  }
  CHECK(refused({"--state", "f", "-k", "n"}).starts_with("-k is not a flag of guard"));
  CHECK(place.usage_error({"guard", "--state", "f", "--fence", "1"})
            .starts_with("missing command: dlock guard "));
}

TEST_CASE("guard leaves COMMAND as it is, and a file needs no server") {
  test::Surroundings place;
  place.variables["DLOCK_SERVER"] = "nonsense://";
  GuardSettings settings =
      place.resolve<GuardSettings>(guard_on_file({"--fence", "1", "cmd", "--fence", "2", "--"}));
  CHECK(settings.command_argv == std::vector<std::string>{"cmd", "--fence", "2", "--"});
  CHECK(settings.fence == Fence{1});
  CHECK_FALSE(settings.server_is_default);
  settings = place.resolve<GuardSettings>(guard_on_file({"--fence", "1", "-c", "exit 3"}));
  CHECK(settings.command_argv == std::vector<std::string>{"/bin/sh", "-c", "exit 3"});
  CHECK(place.usage_error({"guard", "--state-key", "n", "--fence", "1", "true"})
            .starts_with("DLOCK_SERVER: "));
}

TEST_CASE("release --force inside a run throws out whoever is there, not the run's own fence") {
  test::Surroundings place;
  place.variables["DLOCK_FENCE"] = "5,6";
  CHECK_FALSE(place.resolve<ReleaseSettings>({"release", "K", "--force"}).fence);
}

}  // namespace dlock
