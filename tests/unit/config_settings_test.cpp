#include <doctest/doctest.h>

#include <csignal>

#include "unit/config_support.hpp"

namespace dlock {
namespace {

using namespace std::chrono_literals;
using test::Surroundings;
using Words = std::vector<std::string>;

/// The command line `run -k K FLAGS -- true`.
Words run(const Words& flags) {
  Words all = {"run", "-k", "K"};
  all.insert(all.end(), flags.begin(), flags.end());
  all.insert(all.end(), {"--", "true"});
  return all;
}

/// The command line `acquire -k K -t 10 FLAGS`.
Words acquire(const Words& flags) {
  Words all = {"acquire", "-k", "K", "-t", "10"};
  all.insert(all.end(), flags.begin(), flags.end());
  return all;
}

TEST_CASE("nothing but a key and a command gives the defaults of run") {
  const RunSettings settings = Surroundings().resolve<RunSettings>({"run", "-k", "K", "cmd", "a"});
  CHECK(settings.server == Target(LocalTarget{}));
  CHECK(settings.server_is_default);
  CHECK(settings.prefix == "dlock:");
  CHECK(settings.keys == std::vector{LockKey{"K"}});
  CHECK(settings.command_argv == Words{"cmd", "a"});
  CHECK_FALSE(settings.wait);
  CHECK(settings.limit == exclusive);
  CHECK(settings.ttl == 30s);
  CHECK(settings.grace == 5s);
  CHECK(settings.stop_signal == SIGTERM);
  CHECK(settings.stop_on_loss);
  CHECK_FALSE(settings.conflict_exit_code);
  CHECK_FALSE(settings.max_hold);
  CHECK_FALSE(settings.min_hold);
  CHECK_FALSE(settings.status_fd);
  CHECK_FALSE(settings.owner);
  CHECK_FALSE(settings.above);
  CHECK(settings.label.empty());
  CHECK(settings.warnings.empty());
}

TEST_CASE("doctor goes by the ttl and the replicas that run would have") {
  Surroundings place;
  CHECK(place.resolve<DoctorSettings>({"doctor"}).ttl == 30s);
  place.variables["DLOCK_TTL"] = "10";
  CHECK(place.resolve<DoctorSettings>({"doctor"}).ttl == 10s);
  const DoctorSettings settings = place.resolve<DoctorSettings>(
      {"doctor", "--server", "redis://h", "--replicas", "2", "-t", "5", "--acl"});
  CHECK(settings.ttl == 5s);
  CHECK(settings.expected_replicas == 2);
  CHECK(settings.acl);
  CHECK(place.usage_error({"doctor", "--acl", "--json"}) == "--json and --acl exclude each other");
  CHECK(place.usage_error({"doctor", "--schema", "--acl"}) ==
        "--schema and --acl exclude each other");
  CHECK(place.usage_error({"doctor", "--schema", "--json"}) ==
        "--schema and --json exclude each other");
}

TEST_CASE("flag beats variable beats the user's file beats the system's") {
  Surroundings place;
  place.system("ttl = 10\nwait = 1\nlabel = system\nprefix = s:\ngrace = 1\n");
  CHECK(place.resolve<RunSettings>(run({})).ttl == 10s);
  CHECK(place.resolve<RunSettings>(run({})).grace == 1s);
  place.user("ttl = 20\nlabel = user");
  RunSettings settings = place.resolve<RunSettings>(run({}));
  CHECK(settings.ttl == 20s);
  CHECK(settings.label == "user");
  CHECK(settings.wait == 1s);
  CHECK(settings.prefix == "s:");
  place.variables["DLOCK_TTL"] = "40s";
  place.variables["DLOCK_WAIT"] = "3s";
  place.variables["DLOCK_GRACE"] = "2s";
  place.variables["DLOCK_LABEL"] = "variable";
  place.variables["DLOCK_PREFIX"] = "v:";
  settings = place.resolve<RunSettings>(run({}));
  CHECK(settings.ttl == 40s);
  CHECK(settings.wait == 3s);
  CHECK(settings.grace == 2s);
  CHECK(settings.label == "variable");
  CHECK(settings.prefix == "v:");
  settings = place.resolve<RunSettings>(run({"--ttl=50s", "-w0.5", "--grace", "4s", "--label",
                                             "flag", "--server=redis://h", "--prefix=f:"}));
  CHECK(settings.ttl == 50s);
  CHECK(settings.wait == 500ms);
  CHECK(settings.grace == 4s);
  CHECK(settings.label == "flag");
  CHECK(settings.prefix == "f:");
}

TEST_CASE("-n is a wait of zero, whatever else is configured") {
  Surroundings place;
  place.variables["DLOCK_WAIT"] = "5m";
  CHECK(place.resolve<RunSettings>(run({"-n"})).wait == 0ms);
  CHECK(place.resolve<RunSettings>(run({"-w", "0"})).wait == 0ms);
  CHECK(place.resolve<RunSettings>(run({"-n", "-w", "2"})).wait == 2s);
}

TEST_CASE("-s, -x and --limit say how many may be in together") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"-s"})).limit == no_limit);
  CHECK(place.resolve<RunSettings>(run({"-x"})).limit == exclusive);
  CHECK(place.resolve<RunSettings>(run({"--limit", "3"})).limit == Limit{3});
  CHECK(place.resolve<RunSettings>(run({"-s", "--limit", "1000000"})).limit == Limit{1'000'000});
  for (const char* bad : {"0", "1000001", "-1", "x", "1x", " 1", "+1", "0x1", "1.0"}) {
    CHECK(place.usage_error(run({"--limit", bad})) ==
          "--limit: invalid limit \"" + std::string(bad) +
              "\": a number from 1 to 1000000 is expected");
  }
}

TEST_CASE("keys keep their order and count once") {
  const Surroundings place;
  const auto keys = place.resolve<RunSettings>({"run", "-kb", "-ka", "-kb", "-kc", "--", "x"}).keys;
  CHECK(keys == std::vector{LockKey{"b"}, LockKey{"a"}, LockKey{"c"}});
  for (const char* fine : {" ", "a b", "}{", "%", "*", "\x1b[2J", "\xc3\xa4", "[a,b]", "-"}) {
    CHECK(place.resolve<AcquireSettings>(acquire({"-k", fine})).keys.back() == LockKey{fine});
  }
  CHECK(place.resolve<AcquireSettings>(acquire({"-k", std::string(512, 'x')})).keys.size() == 2);
}

TEST_CASE("a bad key is refused and shown escaped") {
  const Surroundings place;
  CHECK(place.usage_error(run({"-k", "a\nb"})) == "--key: \"a\\x0Ab\" holds a line break");
  CHECK(place.usage_error(run({"-k", "a\rb"})) == "--key: \"a\\x0Db\" holds a line break");
  CHECK(place.usage_error(run({"-k", "\xff"})) == "--key: \"\\xFF\" is not UTF-8");
  CHECK(place.usage_error(run({"-k", std::string(513, 'x')})) ==
        "--key: \"" + std::string(80, 'x') + "...\" is longer than 512 bytes");
  CHECK(place.usage_error({"release", "a\nb", "--force"}) ==
        "--key: \"a\\x0Ab\" holds a line break");
  CHECK(place.usage_error({"inspect", "a\n*"}) == "PATTERN: \"a\\x0A*\" holds a line break");
  CHECK(place.usage_error(acquire({""})) == "--key: the value is empty");
}

TEST_CASE("every command but inspect needs a key, and run a command") {
  const Surroundings place;
  CHECK(place.usage_error({"run", "cmd"}) == "missing key: dlock run -k KEY -- COMMAND [ARG ...]");
  CHECK(place.usage_error({"run", "job", "echo"}).starts_with("missing key: dlock run -k KEY"));
  CHECK(place.usage_error({"run", "job", "--", "echo"}) ==
        "missing -k before the key: dlock run -k job -- COMMAND [ARG ...]");
  CHECK(place.usage_error({"run"}) == "missing command: dlock run -k KEY -- COMMAND [ARG ...]");
  CHECK(place.usage_error({"run", "-k", "K"}).starts_with("missing command"));
  CHECK(place.usage_error({"run", "-k", "K", "--"}).starts_with("missing command"));
  CHECK(place.usage_error({"acquire", "-t", "1"}) == "missing key: dlock acquire -k KEY");
  CHECK(place.usage_error({"renew"}).starts_with("missing token"));
  CHECK(place.usage_error({"release"}).ends_with("what acquire printed, --stop or --force"));
  CHECK(place.usage_error({"release", "--force"}) == "missing key: dlock release -k KEY");
}

TEST_CASE("-c runs a line of shell, in place of a COMMAND") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>({"run", "-k", "K", "-c", "echo [a,b]"}).command_argv ==
        Words{"/bin/sh", "-c", "echo [a,b]"});
  CHECK(place.resolve<RunSettings>({"run", "-k", "K", "-c", "x", "--"}).command_argv.size() == 3);
  CHECK(place.usage_error(run({"-c", "echo"})) ==
        "--command and a COMMAND exclude each other: \"true\" follows -c STRING");
  CHECK(place.usage_error({"run", "-k", "K", "-c", "echo", "a\n"}).find("a\\x0A") !=
        std::string::npos);
}

TEST_CASE("a bad duration names its flag") {
  const Surroundings place;
  for (const char* flag : {"--ttl", "--wait", "--grace", "--max-hold", "--min-hold"}) {
    for (const char* bad : {"x", "5x", "-1", "1h30", "5 m", " 5", "1m1h", "366d", "1e3", "0x5", ".",
                            "5.", "inf", "\x1b"}) {
      const std::string line = place.usage_error(run({flag, bad}));
      CAPTURE(line);
      CHECK(line.starts_with(std::string(flag) + ": invalid duration \""));
      CHECK(line.find(" (examples: 10, 500ms, 1h30m") != std::string::npos);
      CHECK(line.find('\x1b') == std::string::npos);
    }
    CHECK(place.usage_error(run({flag, ""})) == std::string(flag) + ": the value is empty");
  }
  CHECK(place.usage_error(run({"-w", "redis://:secret@h"})).find("secret") == std::string::npos);
}

TEST_CASE("the ttl is 100ms to 24h") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"-t", "100ms"})).ttl == 100ms);
  CHECK(place.resolve<RunSettings>(run({"-t", "1d"})).ttl == 24h);
  for (const char* bad : {"0", "99ms", "24h1ms", "365d"}) {
    CHECK(place.usage_error(run({"-t", bad})) ==
          "--ttl: \"" + std::string(bad) + "\" is not between 100ms and 1d00h");
  }
}

TEST_CASE("the ttl of a lock that its caller renews is 100ms to 31d") {
  const Surroundings place;
  CHECK(place.resolve<AcquireSettings>({"acquire", "K", "-t", "31d"}).ttl == 24h * 31);
  CHECK(place.resolve<RenewSettings>({"renew", "K", "--token", "T", "-t", "31d"}).ttl == 24h * 31);
  CHECK(place.resolve<DoctorSettings>({"doctor", "-t", "31d"}).ttl == 24h * 31);
  CHECK(place.usage_error({"acquire", "K", "-t", "32d"}) ==
        "--ttl: \"32d\" is not between 100ms and 31d00h");
}

TEST_CASE("acquire takes the time at which its lease expires in place of a ttl") {
  Surroundings place;
  place.variables["DLOCK_TTL"] = "1m";
  const auto until = [](std::chrono::minutes from_now) {
    return std::vector<std::string>{"acquire", "K", "--until", iso8601(wall_now() + from_now)};
  };
  const auto settings = place.resolve<AcquireSettings>(until(120min));
  CHECK(settings.ttl > 119min);
  CHECK(settings.ttl <= 120min);
  CHECK(place.usage_error(until(-1min)).ends_with("Z\" has passed"));
  CHECK(place.usage_error(until(24h * 31 + 1min)).ends_with("Z\" is more than 31 days from now"));
  CHECK(place.usage_error({"acquire", "K", "--until", "soon"})
            .starts_with("--until: invalid time \"soon\" (examples: 17:00, "));
  CHECK(place.usage_error({"acquire", "K", "--until", "17:00", "-t", "1m"}) ==
        "--ttl and --until exclude each other");
  CHECK(place.usage_error({"acquire", "K", "--until", "17:00", "--attach", "1"})
            .starts_with("--until is for a lock that expires by itself"));
  place.variables["DLOCK_SERVER"] = "redis://a redis://b redis://c";
  CHECK(place.usage_error(until(120min)) ==
        "--until: at most 1m00s on a majority of servers; use dlock run or acquire --attach PID, "
        "which renew it");
}

TEST_CASE("acquire must be told a ttl, by flag, variable or file") {
  Surroundings place;
  CHECK(place.usage_error({"acquire", "-k", "K"}).starts_with("missing ttl: "));
  CHECK(place.resolve<AcquireSettings>({"acquire", "-k", "K", "-t", "10m"}).ttl == 10min);
  place.user("ttl = 1m");
  CHECK(place.resolve<AcquireSettings>({"acquire", "-k", "K"}).ttl == 1min);
  place.variables["DLOCK_TTL"] = "2m";
  CHECK(place.resolve<AcquireSettings>({"acquire", "-k", "K"}).ttl == 2min);
}

TEST_CASE("acquire --attach has a ttl of its own, and a signal") {
  Surroundings place;
  const AcquireSettings usual =
      place.resolve<AcquireSettings>({"acquire", "-k", "K", "--attach", "42"});
  CHECK(usual.attach == 42);
  CHECK(usual.ttl == 30s);
  CHECK(usual.stop_signal == SIGTERM);
  const AcquireSettings chosen = place.resolve<AcquireSettings>(
      {"acquire", "-k", "K", "--attach=42", "-t", "10m", "--signal", "HUP"});
  CHECK(chosen.ttl == 10min);
  CHECK(chosen.stop_signal == SIGHUP);
  place.variables["DLOCK_TTL"] = "2m";
  CHECK(place.resolve<AcquireSettings>({"acquire", "-k", "K", "--attach", "42"}).ttl == 2min);
  CHECK(place.usage_error({"acquire", "-k", "K", "--attach", "0"}) ==
        "--attach: invalid process id \"0\": a number from 1 to 2147483647 is expected");
  CHECK(place.usage_error({"acquire", "-k", "K", "--signal", "HUP"})
            .starts_with("--signal goes with --attach"));
}

TEST_CASE("renew takes a ttl of its flag alone") {
  Surroundings place;
  place.user("ttl = 1m");
  place.variables["DLOCK_TTL"] = "2m";
  CHECK_FALSE(place.resolve<RenewSettings>({"renew", "-k", "K", "--token", "T"}).ttl);
  CHECK(place.resolve<RenewSettings>({"renew", "-k", "K", "--token", "T", "-t", "3m"}).ttl == 3min);
  place.variables["DLOCK_TTL"] = "rubbish";
  CHECK_FALSE(place.resolve<RenewSettings>({"renew", "-k", "K", "--token", "T"}).ttl);
}

TEST_CASE("the grace is at most a third of the ttl") {
  Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"-t", "3s"})).grace == 750ms);
  CHECK(place.resolve<RunSettings>(run({"-t", "100ms"})).grace == 25ms);
  CHECK(place.resolve<RunSettings>(run({"-t", "1h"})).grace == 5s);
  CHECK(place.resolve<RunSettings>(run({"-t", "3s", "--grace", "1s"})).grace == 1s);
  CHECK(place.resolve<RunSettings>(run({"--grace", "10s"})).grace == 10s);
  CHECK(place.resolve<RunSettings>(run({"--grace", "0"})).grace == 0s);
  CHECK(place.usage_error(run({"--grace", "10.001"})) ==
        "--grace: \"10.001\" is more than a third of the ttl, which is 30s");
  place.variables["DLOCK_GRACE"] = "5s";
  CHECK(place.usage_error(run({"-t", "6s"})).starts_with("DLOCK_GRACE: \"5s\" is more than"));
  CHECK(place.resolve<RunSettings>(run({"-t", "6s", "--grace", "2s"})).grace == 2s);
  place.variables.erase("DLOCK_GRACE");
  const std::string file = place.user("\ngrace = 5s");
  CHECK(place.file_error(run({"-t", "6s"})).starts_with(file + ":2: grace: \"5s\" is more than"));
}

TEST_CASE("a signal is named with or without SIG, or by number") {
  const Surroundings place;
  for (const char* term : {"TERM", "SIGTERM", "15", "term", "sigterm"}) {
    CHECK(place.resolve<RunSettings>(run({"--signal", term})).stop_signal == SIGTERM);
  }
  CHECK(place.resolve<RunSettings>(run({"--signal", "HUP"})).stop_signal == SIGHUP);
  CHECK(place.resolve<RunSettings>(run({"--signal", "SIGUSR1"})).stop_signal == SIGUSR1);
  CHECK(place.resolve<RunSettings>(run({"--signal", "9"})).stop_signal == SIGKILL);
  for (const char* bad : {"0", "65", "-1", "SIG", "FOO", "SIGSIGTERM", "15x", "EXIT", "TERM "}) {
    CHECK(place.usage_error(run({"--signal", bad})) ==
          "--signal: invalid signal \"" + std::string(bad) + "\" (examples: TERM, SIGTERM, 15)");
  }
}

TEST_CASE("-E takes an exit code") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"-E", "0"})).conflict_exit_code == 0);
  CHECK(place.resolve<RunSettings>(run({"-E255"})).conflict_exit_code == 255);
  for (const char* bad : {"256", "-1", "x", "1x", "=5", "99999999999999999999"}) {
    CHECK(place.usage_error(run({"-E", bad}))
              .starts_with("--conflict-exit-code: invalid exit code \""));
  }
}

TEST_CASE("--max-hold and --min-hold are more than nothing") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"--max-hold", "1h"})).max_hold == 1h);
  CHECK(place.resolve<RunSettings>(run({"--min-hold", "1ms"})).min_hold == 1ms);
  CHECK(place.usage_error(run({"--max-hold", "0"})) ==
        "--max-hold: \"0\" is not between 1ms and 365d00h");
  CHECK(place.usage_error(run({"--min-hold", "0s"})).starts_with("--min-hold: "));
}

TEST_CASE("--on-lost is stop or ignore") {
  const Surroundings place;
  CHECK_FALSE(place.resolve<RunSettings>(run({"--on-lost", "ignore"})).stop_on_loss);
  CHECK(place.resolve<RunSettings>(run({"--on-lost", "stop"})).stop_on_loss);
  CHECK(place.usage_error(run({"--on-lost", "Stop"})) ==
        "--on-lost: \"Stop\" is neither stop nor ignore");
}

TEST_CASE("--wait-tree is off unless it is asked for, and belongs to run") {
  Surroundings place;
  CHECK_FALSE(place.resolve<RunSettings>(run({})).wait_tree);
  CHECK(place.resolve<RunSettings>(run({"--wait-tree"})).wait_tree);
  CHECK(place.usage_error(run({"--wait-tree=1"})) == "--wait-tree takes no value");
  CHECK_THROWS_AS(place.resolve<AcquireSettings>(acquire({"--wait-tree"})), Error);
}

TEST_CASE("an owner is chosen by its flag, or stands below DLOCK_OWNER") {
  Surroundings place;
  place.variables["DLOCK_OWNER"] = "a/b";
  CHECK(place.resolve<RunSettings>(run({})).above == Owner{"a/b"});
  CHECK(place.resolve<AcquireSettings>(acquire({"--owner", "ci:1@x"})).owner == Owner{"ci:1@x"});
  CHECK(place.usage_error(run({"--owner", "a/b"})) ==
        "--owner: \"a/b\" may hold letters, digits and ._:@- only");
  CHECK(place.usage_error(run({"--owner", std::string(129, 'x')})).ends_with("128 characters"));
  for (const char* bad : {"a//b", "/a", "a/", "a b", "a\n", "\xc3\xa4"}) {
    place.variables["DLOCK_OWNER"] = bad;
    CHECK(place.usage_error(run({})).starts_with("DLOCK_OWNER: \""));
    CHECK(place.resolve<InspectSettings>({"inspect"}).keys.empty());
  }
  place.variables["DLOCK_OWNER"] = "";
  CHECK(!place.resolve<RunSettings>(run({})).above);
}

TEST_CASE("a new owner below 16 others drops the oldest of them") {
  Surroundings place;
  std::string path = "1";
  for (int depth = 2; depth <= 15; ++depth) path += "/" + std::to_string(depth);
  place.variables["DLOCK_OWNER"] = path;
  CHECK(place.resolve<RunSettings>(run({})).above == Owner{path});
  place.variables["DLOCK_OWNER"] = path + "/16";
  const auto above = place.resolve<RunSettings>(run({})).above;
  CHECK(above == Owner{path + "/16"});
  CHECK(new_owner_below(above).text.starts_with(path.substr(2) + "/16/"));
  CHECK(place.resolve<RunSettings>(run({"--owner", "me"})).owner == Owner{"me"});
  place.variables["DLOCK_OWNER"] = path + "/16/17";
  CHECK(place.usage_error(run({"--owner", "me"})).starts_with("DLOCK_OWNER: \""));
}

TEST_CASE("a label is one line of at most 200 bytes of UTF-8, shortened to that") {
  const Surroundings place;
  CHECK(place.resolve<RunSettings>(run({"--label", std::string(200, 'x')})).label.size() == 200);
  CHECK(place.resolve<RunSettings>(run({"--label", "\x1b[2J"})).label == "\x1b[2J");
  const std::string most(199, 'x');
  const std::vector<std::pair<std::string, std::string>> shortened{
      {most + "yz", most + "y"}, {"a\nb", "a"}, {"a\rb", "a"}, {most + "\u00fc", most}};
  for (const auto& [given, label] : shortened) {
    const auto settings = place.resolve<RunSettings>(run({"--label", given}));
    CHECK(settings.label == label);
    CHECK(settings.warnings.back() ==
          "--label: the label is shortened to its first line, of at most 200 bytes");
  }
  CHECK(place.usage_error(run({"--label", "\xff"})) == "--label: the label is not UTF-8");
}

TEST_CASE("a prefix has no braces and no control characters") {
  const Surroundings place;
  const auto prefix_of = [&](const std::string& prefix) {
    return place.resolve<RunSettings>(run({"--server", "redis://h", "--prefix", prefix})).prefix;
  };
  CHECK(prefix_of("team \xc3\xa4\\x:*") == "team \xc3\xa4\\x:*");
  CHECK(prefix_of(std::string(100, 'x')).size() == 100);
  CHECK(place.usage_error(run({"--server", "local:", "--prefix", "x:"})) ==
        "--prefix: locks on this host have none: name another directory, as in local:/DIR");
  for (const char* bad : {"{", "a}b", "\n", "\x7f", "\xc2\x80", "\xff", "a\tb"}) {
    CHECK(place.usage_error(run({"--prefix", bad})).starts_with("--prefix: a prefix is "));
  }
  CHECK(place.usage_error(run({"--prefix", std::string(101, 'x')}))
            .starts_with("--prefix: a prefix is "));
}

TEST_CASE("--status-fd must be open for writing") {
  const Surroundings place;
  const std::string file = place.file("status", "");
  FILE* writer = fopen(file.c_str(), "w");
  FILE* reader = fopen(file.c_str(), "r");
  const std::string writable = std::to_string(fileno(writer));
  const std::string readable = std::to_string(fileno(reader));
  CHECK(place.resolve<RunSettings>(run({"--status-fd", writable})).status_fd == fileno(writer));
  CHECK(place.usage_error(run({"--status-fd", readable})) ==
        "--status-fd: " + readable + " is not open for writing");
  fclose(reader);
  fclose(writer);
  CHECK(
      place.usage_error(run({"--status-fd", "9999"})).starts_with("--status-fd: 9999 is not open"));
  for (const char* bad : {"-1", "x", "1x", "99999999999"}) {
    CHECK(place.usage_error(run({"--status-fd", bad})).find("invalid file descriptor") !=
          std::string::npos);
  }
}

TEST_CASE("renew and release need a token, of the flag or of DLOCK_TOKEN") {
  Surroundings place;
  const auto token = [&](const Words& arguments) {
    const Settings settings = place.resolve(arguments);
    const auto* renew = std::get_if<RenewSettings>(&settings);
    return renew != nullptr ? renew->token : std::get<ReleaseSettings>(settings).token;
  };
  for (const char* command : {"renew", "release"}) {
    place.variables.erase("DLOCK_TOKEN");
    CHECK(place.usage_error({command, "K"})
              .starts_with(
                  "missing token: --token or an exported DLOCK_TOKEN with what acquire printed"));
    place.variables["DLOCK_TOKEN"] = "variable";
    CHECK(token({command, "K"}) == Token{"variable"});
    CHECK(token({command, "K", "--token", "flag"}) == Token{"flag"});
    CHECK(place.usage_error({command, "K", "--token", "se cret"}) ==
          "--token: the token may hold letters, digits and -._:@/ only");
  }
  CHECK(place.resolve<RunSettings>(run({})).ttl == 30s);
}

TEST_CASE("release --force takes a fence and no token") {
  Surroundings place;
  place.variables["DLOCK_TOKEN"] = "T";
  ReleaseSettings settings = place.resolve<ReleaseSettings>({"release", "K", "--force"});
  CHECK(settings.evict);
  CHECK_FALSE(settings.token);
  CHECK_FALSE(settings.fence);
  settings =
      place.resolve<ReleaseSettings>({"release", "K", "--force", "--fence", "9007199254740991"});
  CHECK(settings.fence == Fence{9007199254740991});
  CHECK(place.usage_error({"release", "K", "--force", "--token", "T"}) ==
        "--force and --token exclude each other");
  CHECK(place.usage_error({"release", "K", "--fence", "1"}) ==
        "--fence goes with --force or --stop");
  for (const char* bad : {"0", "-1", "9007199254740992", "x", "1.5"}) {
    CHECK(place.usage_error({"release", "K", "--force", "--fence", bad})
              .starts_with("--fence: invalid fence \"" + std::string(bad) + "\""));
  }
}

TEST_CASE("inspect takes keys and patterns, and everything without either") {
  const Surroundings place;
  CHECK(place.resolve<InspectSettings>({"inspect"}).patterns == Words{"*"});
  CHECK(place.resolve<InspectSettings>({"inspect", "k"}).patterns.empty());
  const InspectSettings settings =
      place.resolve<InspectSettings>({"inspect", "a*", "k", "a*", "k", "--json", "-q"});
  CHECK(settings.patterns == Words{"a*"});
  CHECK(settings.keys == std::vector{LockKey{"k"}});
  CHECK(settings.json);
  CHECK(settings.quiet);
  CHECK(place.resolve<InspectSettings>({"inspect", "-k", "a*"}).keys == std::vector{LockKey{"a*"}});
}

TEST_CASE("acquire prints one form of its result") {
  const Surroundings place;
  CHECK(place.resolve<AcquireSettings>(acquire({"--json"})).json);
  CHECK(place.resolve<AcquireSettings>(acquire({"--env"})).env);
  CHECK(place.usage_error(acquire({"--env", "--json"})) == "--json and --env exclude each other");
}

TEST_CASE("an empty variable is an unset one, but an empty DLOCK_SERVER is an error") {
  Surroundings place;
  place.user("wait = 7s");
  for (const char* name : {"DLOCK_PREFIX", "DLOCK_TTL", "DLOCK_WAIT", "DLOCK_GRACE", "DLOCK_CONFIG",
                           "DLOCK_LABEL", "DLOCK_OWNER"}) {
    place.variables[name] = "";
  }
  CHECK(place.resolve<RunSettings>(run({})).wait == milliseconds(7000));
  place.variables["DLOCK_SERVER"] = "";
  CHECK(place.usage_error(run({})) ==
        "DLOCK_SERVER: the variable is empty: unset it, or give it a value");
}

TEST_CASE("a bad value is an error even where a better place overrides it") {
  Surroundings place;
  place.variables["DLOCK_TTL"] = "5x";
  CHECK(place.usage_error(run({"-t", "5"})).starts_with("DLOCK_TTL: invalid duration \"5x\""));
  place.variables.clear();
  const std::string file = place.system("# comment\nwait = soon");
  place.variables["HOME"] = place.path("");
  place.variables["DLOCK_WAIT"] = "1";
  CHECK(place.file_error(run({"-n"})).starts_with(file + ":2: wait: invalid duration \"soon\""));
}

TEST_CASE("a command reads no settings but its own") {
  Surroundings place;
  for (const char* name : {"DLOCK_TTL", "DLOCK_WAIT", "DLOCK_GRACE", "DLOCK_LABEL"}) {
    place.variables[name] = "";
  }
  place.user("ttl = x\nwait = x\ngrace = x");
  CHECK(place.resolve<InspectSettings>({"inspect"}).patterns == Words{"*"});
  CHECK(place.resolve<ReleaseSettings>({"release", "K", "--force"}).evict);
  place.variables["DLOCK_KEY"] = "";
  place.variables["DLOCK_FENCE"] = "x";
  CHECK(place.resolve<InspectSettings>({"inspect"}).keys.empty());
}

TEST_CASE("the settings of a run are not read from what it gives its child") {
  Surroundings place;
  place.variables["DLOCK_KEY"] = "K";
  CHECK(place.usage_error({"run", "cmd"}).starts_with("missing key"));
}

}  // namespace
}  // namespace dlock
