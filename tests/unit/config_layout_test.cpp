#include <doctest/doctest.h>

#include "compat/layout.hpp"
#include "unit/config_support.hpp"

namespace dlock {
namespace {

std::vector<std::string> on_redis(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--server", "redis://db"});
  return arguments;
}

}  // namespace

TEST_CASE("--compat names a layout, with its part up to the end of the word") {
  const test::Surroundings place;
  const auto key_of = [&](const char* layout) {
    const auto settings =
        place.resolve<InspectSettings>(on_redis({"inspect", "-k", "N", "--compat", layout}));
    return settings.layout->key_of({"N"});
  };
  CHECK(key_of("redis-py") == "N");
  CHECK(key_of("laravel:a:b:") == "a:b:N");
  CHECK(key_of("shedlock") == "job-lock:default:N");
  CHECK(key_of("shedlock:a:b") == "job-lock:a:b:N");
  CHECK(key_of("spring:a:b") == "a:b:N");
  CHECK(!place.resolve<InspectSettings>(on_redis({"inspect", "N"})).layout);
}

TEST_CASE("--compat refuses a layout that does not exist, and one without its part or with none") {
  const test::Surroundings place;
  const auto error = [&](const char* layout) {
    return place.usage_error(on_redis({"inspect", "-k", "N", "--compat", layout}));
  };
  const std::string unknown = error("REDIS-PY");
  CHECK(unknown.starts_with("--compat: no layout is called \"REDIS-PY\"; there are: redis-py, "));
  for (const LayoutRow& row : layouts()) CHECK(unknown.find(row.name) != std::string::npos);
  CHECK(error("laravel") ==
        "--compat: missing part: write --compat laravel:PREFIX, as the application has it");
  CHECK(error("spring:") ==
        "--compat: missing part: write --compat spring:REGISTRY, as the application has it");
  CHECK(error("shedlock:").starts_with("--compat: missing part"));
  CHECK(error("redsync:x").starts_with("--compat: redsync has no part of its own"));
  CHECK(error("laravel:a\nb").starts_with("--compat: the part of the key holds a line break"));
  CHECK(error("\x1b[2J").find('\x1b') == std::string::npos);
  CHECK(place.usage_error(
            on_redis({"inspect", "-k", "N", "--compat", "redsync", "--compat", "redlock"})) ==
        "--compat goes with all keys of a command: there is a second one");
}

TEST_CASE("--compat refuses what no layout has room for") {
  const test::Surroundings place;
  const auto refuses = [&](std::vector<std::string> arguments, const char* why) {
    arguments.insert(arguments.begin() + 1, {"-k", "N", "--compat", "redis-py"});
    const std::string error = place.usage_error(arguments);
    CAPTURE(error);
    CHECK(error.find(why) != std::string::npos);
  };
  for (const std::vector<std::string>& flag : {std::vector<std::string>{"-s"},
                                               {"--limit", "2"},
                                               {"--owner", "x"},
                                               {"--latest"},
                                               {"--replicas", "1"},
                                               {"--prefix", "x"}}) {
    auto arguments = on_redis({"run"});
    arguments.insert(arguments.end(), flag.begin(), flag.end());
    arguments.emplace_back("true");
    refuses(arguments, "not go with it");
  }
  refuses(on_redis({"release", "--force", "--fence", "1"}), "does not go with it");
  refuses(on_redis({"release", "--force", "--reason", "x"}), "does not go with it");
  refuses(on_redis({"release", "--force", "a*"}), "no patterns");
  refuses(on_redis({"inspect", "--all-kinds"}), "does not go with it");
  refuses(on_redis({"renew", "--token", "t"}), "missing ttl");
  refuses({"run", "--server", "local:/tmp", "true"}, "live in Redis");
  refuses({"run", "--server", "postgres://db/x", "true"}, "live in Redis");
  refuses({"run", "--server", "etcd://e1", "true"}, "live in Redis");
  refuses({"run", "--server", "zk://z1", "true"}, "live in Redis");
  CHECK(
      place.usage_error(on_redis({"inspect", "--compat", "redis-py"})).starts_with("missing key"));
  CHECK(place.usage_error(on_redis({"release", "--token", "t", "--compat", "redis-py"})) ==
        "missing key: dlock release --compat LAYOUT -k KEY");
}

TEST_CASE("--compat goes with several servers where its library does so") {
  const test::Surroundings place;
  const auto on_three = [](const char* layout) {
    return std::vector<std::string>{"run",       "-k",       "N",         "--compat",
                                    layout,      "--server", "redis://a", "--server",
                                    "redis://b", "--server", "redis://c", "true"};
  };
  for (const char* layout : {"redsync", "node-redlock", "pottery", "laravel:x", "shedlock"}) {
    CHECK(place.resolve<RunSettings>(on_three(layout)).layout);
  }
  for (const char* layout : {"spring:x", "python-redis-lock", "redisson", "symfony"}) {
    CHECK(place.usage_error(on_three(layout)).find("does not use several") != std::string::npos);
  }
}

TEST_CASE("a layout is named on the command line only") {
  test::Surroundings place;
  place.variables["DLOCK_COMPAT"] = "redis-py";
  CHECK(!place.resolve<InspectSettings>(on_redis({"inspect", "N"})).layout);
  place.user("compat = redis-py\n");
  CHECK(place.file_error(on_redis({"inspect", "N"})).find("unknown setting") != std::string::npos);
}

}  // namespace dlock
