#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/place.hpp"
#include "support/files.hpp"
#include "support/privileges.hpp"
#include "support/skip.hpp"

namespace dlock::test {
namespace {

constexpr const char* notice =
    "dlock: no server configured: locking only this user's jobs on this host; set DLOCK_SERVER, "
    "or --server local: if that is meant\n";

/// Runs a script with its own /run and home directory; skipped if that is not possible.
std::optional<Result> in_own_world(const std::string& script) {
  const ProcessOptions options{.env = {{"D", dlock_path()}}};
  const std::string mounts = "mount -t tmpfs none /run && mount -t tmpfs none /root && ";
  auto result =
      run({"unshare", "-m", "sh", "-c", mounts + "echo own >&2; " + script}, clean(options));
  if (skip_if(!result.err.starts_with("own\n"), "needs mount namespaces")) return std::nullopt;
  result.err.erase(0, 4);
  return result;
}

TEST_CASE("settings: without a server it locks this user's jobs on this host, and says so") {
  const auto result = in_own_world(
      R"("$D" run -k a -- stat -c %a /run/dlock; "$D" inspect -q a; "$D" run -q -k a -- true)");
  if (!result) return;
  CHECK(result->out == "700\n");
  CHECK(result->err == std::string(notice) + notice + notice);
}

TEST_CASE("settings: what there is to notice ends nothing where the reader of stderr has gone") {
  const auto result = in_own_world(
      R"(bash -c 'exec 2> >(exit 0); wait $!; "$D" run -q -k a -- echo ran; echo $?
                  "$D" acquire -k; echo $?')");
  if (!result) return;
  CHECK(result->out == "ran\n0\n64\n");
}

TEST_CASE("settings: a server that is configured leaves nothing to notice") {
  const auto result =
      in_own_world(R"("$D" run --server local: -k a -- echo 1; DLOCK_SERVER=local: "$D" inspect)");
  if (!result) return;
  CHECK(result->out == "1\n");
  CHECK(result->err == "");
}

TEST_CASE("settings: another user's locks are in the home that the user database names") {
  const auto result = in_own_world(
      R"(cp "$D" /root/dlock && mkdir /root/home && chown 54321 /root/home && cd / &&
         echo 'somebody:x:54321:54321::/root/home:/bin/sh' | cat - /etc/passwd >/root/passwd &&
         mount --bind /root/passwd /etc/passwd || exit
         HOME=/nowhere setpriv --reuid 54321 --clear-groups /root/dlock run -q -k a -- true
         find /root/home/.local/state/dlock -mindepth 1 -maxdepth 1 -printf '%m %U %y\n')");
  if (!result) return;
  CAPTURE(result->err);
  CHECK(result->out == "700 54321 d\n");
}

TEST_CASE("settings: a user without a home of his own is told to name a directory") {
  const auto result = in_own_world(
      R"(cp "$D" /root/dlock && mkdir -m 755 /root/home && cd / &&
         echo 'somebody:x:54321:54321::/root/home:/bin/sh' | cat - /etc/passwd >/root/passwd &&
         mount --bind /root/passwd /etc/passwd || exit
         setpriv --reuid 54321 --clear-groups /root/dlock run -q -k a -- echo ran; echo $?)");
  if (!result) return;
  CAPTURE(result->err);
  CHECK(result->out == "71\n");
  CHECK(holds(result->err, "cannot make the lock directory /root/home/.local/state/dlock/"));
  CHECK(holds(result->err, "Permission denied"));
  CHECK(holds(result->err, "--server local:/dir"));
}

TEST_CASE("settings: the file of another user's home is left alone, and that is told") {
  if (skip_if(!not_root_here().empty(), not_root_here())) return;
  const OrdinaryUser user;
  const TempDir home;
  const TempDir locks;
  REQUIRE(mkdir((home / ".config").c_str(), 0700) == 0);
  write_file(home / ".config/dlock.conf", "no-such-setting = 1\n");
  REQUIRE(chmod(locks.path().c_str(), 01777) == 0);
  const std::string program = user.own_copy(dlock_path());
  const auto run_in = [&](const std::string& place) {
    ProcessOptions options;
    options.env["HOME"] = place;
    return run(user.run_as({program, "run", "--server", "local:" + locks.path(), "-k", "a", "--",
                            "echo", "ran"}),
               clean(options));
  };
  for (const mode_t mode : {0700U, 0755U}) {
    REQUIRE(chmod(home.path().c_str(), mode) == 0);
    const Result result = run_in(home.path());
    check_ran(result, "ran\n");
    CHECK(is_one_message(result.err));
    CHECK(holds(result.err, "warning: HOME is " + home.path() + ", the home of another user"));
  }
  // An unreadable file of the user's own is still an error.
  REQUIRE(chown(home.path().c_str(), nobody, nobody) == 0);
  CHECK(run_in(home.path()).exit_code == 78);
}

TEST_CASE("settings: flag before variable before file") {
  const Place by_flag(Engine::local);
  const Place by_variable(Engine::local);
  const Place by_file(Engine::local);
  const std::string file = by_file.dir() / "dlock.conf";
  write_file(file, "# where\nserver = " + by_file.url() + "\nlabel = from the file \n\n");
  ProcessOptions options{.env = {{"DLOCK_CONFIG", file}}};
  CHECK(dlock({"acquire", "-t", "1m", "a"}, options).exit_code == 0);
  CHECK(by_file.state("a")["holders"][0]["label"] == "from the file");
  options.env["DLOCK_SERVER"] = by_variable.url();
  options.env["DLOCK_LABEL"] = "from the variable";
  CHECK(dlock({"acquire", "-t", "1m", "a"}, options).exit_code == 0);
  CHECK(by_variable.state("a")["holders"][0]["label"] == "from the variable");
  CHECK(dlock({"acquire", "-t", "1m", "a", "--server", by_flag.url(), "--label", "from the flag"},
              options)
            .exit_code == 0);
  CHECK(by_flag.state("a")["holders"][0]["label"] == "from the flag");
  options.env["DLOCK_LABEL"] = "";  // as a variable that is not set
  CHECK(dlock({"acquire", "-t", "1m", "b", "--label", ""}, options).exit_code == 0);
  CHECK(by_variable.state("b")["holders"][0]["label"] == "");
}

TEST_CASE("settings: the file in the home directory is found") {
  const Place place(Engine::local);
  REQUIRE(place.shell("mkdir .config").exit_code == 0);
  write_file(place.dir() / ".config/dlock.conf", "server = " + place.url() + "\nwait = 0\n");
  const ProcessOptions options{.env = {{"HOME", place.dir().path()}}};
  const auto holder = place.hold("a");
  check_message(dlock({"run", "-k", "a", "--", "true"}, options), 75);
}

TEST_CASE("settings: what named a server that is not reached is told, unless it is a flag") {
  const Place place(Engine::local);
  const std::string file = place.dir() / "dlock.conf";
  write_file(file, "# where\nserver = redis://127.0.0.1:1\n");
  const auto ran = [](const std::vector<std::string>& flags, const ProcessOptions& options) {
    std::vector<std::string> words{"inspect", "a"};
    words.insert(words.end(), flags.begin(), flags.end());
    return dlock(words, options);
  };
  check_says(ran({"--config", file}, {}), 69, " (server from " + file + ":2)\n");
  check_says(ran({}, {.env = {{"DLOCK_SERVER", "redis://127.0.0.1:1"}}}), 69,
             " (server from DLOCK_SERVER)\n");
  const auto by_flag = ran({"--server", "redis://127.0.0.1:1"}, {});
  CHECK(by_flag.exit_code == 69);
  CHECK(!holds(by_flag.err, "server from"));
  const auto released = dlock({"release", "a", "--token", "T", "--config", file});
  check_says(released, 69, " (server from " + file + ":2)\n");
  CHECK(holds(ran({"-v", "--config", file}, {}).err, "dlock: server from " + file + ":2\n"));
  CHECK(holds(dlock({"doctor", "--config", file}).out, "from " + file + ":2\n"));
}

TEST_CASE("settings: a user's file that names another server than the host's is warned of") {
  const auto result = in_own_world(
      R"(mkdir -p /root/etc /root/home/.config && cp -r /etc/. /root/etc 2>/root/err
         mount --bind /root/etc /etc && echo server=local: >/etc/dlock.conf
         echo server=local:/root >/root/home/.config/dlock.conf
         HOME=/root/home "$D" doctor | grep source
         HOME=/root/home "$D" inspect -v 2>&1 | grep from
         echo server=local: >/root/home/.config/dlock.conf
         HOME=/root/home "$D" doctor | grep source)");
  if (!result) return;
  const auto lines = lines_of(result->out);
  REQUIRE(lines.size() == 3);
  const std::string source =
      "from /root/home/.config/dlock.conf:1, which overrides the server of /etc/dlock.conf:1";
  CHECK(lines[0].starts_with("warning "));
  CHECK(holds(lines[0], source));
  CHECK(lines[1] == "dlock: server " + source);
  CHECK(lines[2].starts_with("ok "));
}

TEST_CASE("settings: --prefix starts every key in Redis") {
  const Place place(Engine::redis);
  CHECK(place.dlock({"acquire", "a", "-t", "1m", "--prefix", "mine:"}).exit_code == 0);
  CHECK(place.is_free("a"));
  const auto keys = place.server().command({"KEYS", "*"});
  REQUIRE(!keys.items.empty());
  for (const auto& key : keys.items) CHECK(key.text.starts_with("mine:"));
  CHECK(place.dlock({"inspect", "-q", "a"}, {.env = {{"DLOCK_PREFIX", "mine:"}}}).exit_code == 0);
}

TEST_CASE("settings: a database of its own has locks of its own") {
  const Place place(Engine::redis);
  const std::string other = place.url() + "?db=3";
  CHECK(place.dlock({"acquire", "a", "-t", "1m", "--server", other}).exit_code == 0);
  CHECK(place.is_free("a"));
  CHECK(place.dlock({"inspect", "-q", "a", "--server", other}).exit_code == 0);
}

TEST_CASE("settings: what is wrong in a file is 78 and told with file and line") {
  const TempDir dir;
  const std::string file = dir / "dlock.conf";
  for (const char* text :
       {"server = local:/tmp\nno such = 1\n", "\nnonsense\n", "# x\nttl = 5x\n", "\nttl =\n",
        "\nserver = http://x\n", "\nwait = -1\n", "wait = 1\nwait = 2\n", "\ntoken = x\n",
        "\nlabel = \x1b[31m\xff\n", "\ngrace = 1h1\n"}) {
    CAPTURE(text);
    write_file(file, text);
    check_message(dlock({"run", "-k", "a", "--config", file, "--", "echo", "ran"}), 78,
                  file + ":2: ");
  }
  for (const std::string& bad : {dir / "missing", dir.path(), std::string("/dev/null/x")}) {
    check_message(dlock({"run", "-k", "a", "--config", bad, "--", "echo", "ran"}), 78, bad);
  }
}

}  // namespace
}  // namespace dlock::test
